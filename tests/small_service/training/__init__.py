"""The scripts that made the models in `model_repository/`, with the accuracy they reached."""
