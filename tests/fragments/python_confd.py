"""The fragments in ``tests/data/python-confd``, with what a test puts in place of their addresses and files."""

from pathlib import Path

from pyconfd.model.rendering import Fragment

FOLDER = Path(__file__).parents[1] / "data" / "python-confd"
LANDING_PAGE = "/etc/pyconfd/www/index.html"


def fragments(**instead: str) -> tuple[Fragment, ...]:
    """All in order; ``instead`` gives the addresses ``http``, ``https`` and ``redis``, and the ``landing`` page."""
    places = {"http": "*:80", "https": "*:443", "redis": "*:6379", "landing": LANDING_PAGE}
    found = []
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in {".conf", ".tmpl"}:
            text = path.read_text(encoding="utf-8")
            for name, value in instead.items():
                text = text.replace(f" {places[name]}\n", f" {value}\n")
            found.append(Fragment(path.name, text))
    return tuple(found)
