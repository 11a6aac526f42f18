"""The version of svsl, which the files it writes carry."""

__version__ = "0.1.0"
