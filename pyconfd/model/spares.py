"""The names of spare backends: empty ones in the file, for new backends until the next reload."""

import re
from functools import lru_cache

MAP_NAME = "spare-backends.map"
"""The file name of the map from a backend's name to the spare that serves it; in the file it is empty."""

_NAME = re.compile(r"spare-(?P<defaults>[A-Za-z0-9_.:-]+)-\d+")


def spare_name(defaults: str, number: int) -> str:
    """Return the name of a spare that takes everything from a defaults section; ``number`` counts from 1."""
    return f"spare-{defaults}-{number}"


@lru_cache(maxsize=65_536)  # all spares of a worker are counted at each change that takes one
def spare_kind(name: str) -> str:
    """Return the defaults section that a spare of this name is from; "" where it is the name of none."""
    found = _NAME.fullmatch(name)
    return found["defaults"] if found else ""


def spare_section(defaults: str, number: int) -> str:
    """Return the text of a spare's section."""
    return f"backend {spare_name(defaults, number)} from {defaults}\n"


def is_spare_section(text: str) -> bool:
    """Return whether the text of a section is that of a spare: a header and nothing else but comments."""
    header, _, rest = text.partition("\n")
    words = header.split(" ")
    if len(words) != 4 or words[0] != "backend" or words[2] != "from":
        return False
    return spare_kind(words[1]) == words[3] and all(line[:1] in {"", "#"} for line in rest.split("\n"))
