"""What runs on TensorFlow itself, in the environment of ``make test-tensorflow``."""
