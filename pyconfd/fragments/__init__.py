"""The fragments that pyconfd ships: a set to start from, and the default of the demo."""

from importlib.resources import files


def directory() -> str:
    """Give the path of the directory that holds the shipped fragments."""
    return str(files(__name__))
