"""What is known of one setting beside its type and default."""

from dataclasses import dataclass

from pyconfd.settings.kinds import Kind


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one field of the tree, put into its annotation.

    ``name`` replaces SECTION_FIELD in the flag and in ``PYCONFD_...``; only the options of python-confd have one.
    ``old_env`` is the environment name that python-confd read; ``short`` a further flag; ``empty`` says what an empty
    value stands for.
    """

    about: str
    kind: Kind
    name: str = ""
    old_env: str = ""
    short: str = ""
    empty: str = ""
