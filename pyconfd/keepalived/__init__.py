"""keepalived's configuration, the packet filter's and the scripts, as they are shipped beside the program."""

from importlib.resources import files
from pathlib import Path


def directory() -> Path:
    """Return the directory that holds them."""
    return Path(str(files(__name__)))
