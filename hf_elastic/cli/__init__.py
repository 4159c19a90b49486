"""The command line: one thin command per step from a checkpoint to a family. Everything it does is in the library."""

from .app import app, main

__all__ = ["app", "main"]
