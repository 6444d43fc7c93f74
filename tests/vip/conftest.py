import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the flags of this suite from pyconfd, which refuses variables of its prefix that it does not know."""
    for name in [name for name in os.environ if name.startswith("PYCONFD_TEST_")]:
        monkeypatch.delenv(name)
