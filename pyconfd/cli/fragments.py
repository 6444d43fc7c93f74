"""Copying the shipped fragments to where an operator edits them."""

from pathlib import Path

from pyconfd.errors import ConfigurationError, Problem


def copy_fragments(source: str, target: str) -> tuple[list[str], list[str]]:
    """Copy what is in ``source`` below ``target``; a file that is there is never overwritten.

    Gives the names that were copied and those that were kept, sorted.

    Raises:
        ConfigurationError: the target cannot be written.
    """
    copied, kept = [], []
    for origin in sorted(Path(source).rglob("*")):
        if not origin.is_file() or origin.suffix in {".py", ".pyc"}:
            continue
        name = origin.relative_to(source)
        try:
            Path(target, name).parent.mkdir(parents=True, exist_ok=True)
            with Path(target, name).open("xb") as file:
                file.write(origin.read_bytes())
        except FileExistsError:
            kept.append(str(name))
        except OSError as error:
            place = str(error.filename or target)
            raise ConfigurationError(Problem(place, f"cannot be written: {error.strerror}")) from error
        else:
            copied.append(str(name))
    return copied, kept
