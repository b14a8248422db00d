"""What runs on PyTorch itself, in the environment of ``make test-torch``."""
