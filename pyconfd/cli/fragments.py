"""Copying the shipped fragments to where an operator edits them."""

from collections.abc import Mapping
from pathlib import Path

from pyconfd.errors import ConfigurationError, Problem


def copy_fragments(fragments: Mapping[str, Path], target: str) -> tuple[list[str], list[str]]:
    """Copy files below the directory ``target`` by their names; a file that is there is never overwritten.

    Gives the names that were copied and those that were kept, in the order given.

    Raises:
        ConfigurationError: the target cannot be written.
    """
    copied, kept = [], []
    for name, origin in fragments.items():
        try:
            Path(target, name).parent.mkdir(parents=True, exist_ok=True)
            with Path(target, name).open("xb") as file:
                file.write(origin.read_bytes())
        except FileExistsError:
            if not Path(target, name).is_file():
                raise ConfigurationError(Problem(target, "cannot be written: a file is in the way")) from None
            kept.append(name)
        except OSError as error:
            place = str(error.filename or target)
            raise ConfigurationError(Problem(place, f"cannot be written: {error.strerror}")) from error
        else:
            copied.append(name)
    return copied, kept
