"""``python -m release WHAT``: what ``make wheelhouse``, ``make deb`` and ``make release`` run."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from release.deb import build_deb
from release.project import DIST, ReleaseError
from release.wheelhouse import build_wheelhouse
from release.whole import build_release


def _made(what: str, dist: Path) -> Path:
    if what == "release":
        return build_release(dist)
    wheel = build_wheelhouse(dist / "wheelhouse")
    return build_deb(dist / "wheelhouse", dist) if what == "deb" else wheel


def main() -> int:
    """Make what is asked for; 0 when it is there, 1 when something stands in the way."""
    parser = ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("what", choices=["wheelhouse", "deb", "release"])
    parser.add_argument("--dist", type=Path, default=DIST, help="where it goes (dist)")
    given = parser.parse_args()
    given.dist.mkdir(parents=True, exist_ok=True)
    try:
        print(_made(given.what, given.dist.resolve()))  # noqa: T201 - the answer
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)  # noqa: T201 - the answer
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
