"""Forests that other libraries have trained, in the environment of ``make test-fil``."""
