"""The version, apart from the package's `__init__`, which offers `Run` and with it most of raypoly."""

__version__ = "0.1.0"
