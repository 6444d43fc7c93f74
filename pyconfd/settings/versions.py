"""For which pyconfd settings are written, and whether that is a newer one."""

import re

from pyconfd import __version__
from pyconfd.settings.kinds import Text

_FORM = r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?"
VERSION = Text(what="a version such as 1.2.3", pattern=_FORM)


def is_newer(version: str, than: str = __version__) -> bool:
    """Whether one version comes after another; "" is this one."""
    return bool(version) and _order(version) > _order(than)


def _order(version: str) -> tuple[int, int, int, str, int]:
    found = re.fullmatch(_FORM, version)
    if found is None:
        raise ValueError(version)
    major, minor, patch, stage, number = found.groups()
    # A release comes after its candidates.
    return int(major), int(minor), int(patch), stage or "released", int(number or 0)
