"""Reads what ``migrate`` wrote as pyconfd itself would."""

from pyconfd.predecessors.migrate.migration import SETTINGS_FILE
from pyconfd.settings import Settings, resolve


def settings_of(text: str) -> Settings:
    """The settings of a pyconfd.toml: an unknown key or a value that is not accepted is a ConfigurationError."""

    def read(path: str) -> str:
        if path == SETTINGS_FILE:
            return text
        raise FileNotFoundError(2, "No such file or directory", path)

    return resolve({"config": SETTINGS_FILE}, {}, read).settings
