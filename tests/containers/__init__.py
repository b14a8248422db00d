"""The image of ``service.py``, built and run as users do: ``make test-containers``."""
