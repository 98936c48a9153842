"""What every room uses: config, errors, values, plugins, seeds, text. Its `__version__` needs no import of the rest."""

__version__ = "0.1.0"
