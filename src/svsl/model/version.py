"""The version of svsl, recorded in the files it writes."""

__version__ = "0.1.0"
