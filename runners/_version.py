"""The version, in one place: the wheel, `kushi --version` and the server metadata read it here"""

__version__ = "0.1.0"
