"""Counts the servers that a configuration sends traffic to, where there is no cluster to look at. Pure."""

from itertools import pairwise

from pyconfd.haproxy.sections import parse
from pyconfd.model.context import Census

_PROXIES = frozenset({"backend", "listen"})


def census_of(text: str) -> Census:
    """Return how many servers there are, and, as what is claimed, how many are neither disabled nor of weight 0."""
    claimed = total = 0
    for section in parse(text):
        if section.keyword not in _PROXIES:
            continue
        for line in section.lines:
            if line.words[0] == "server" and len(line.words) > 2:
                total += 1
                claimed += _takes_traffic(line.words[3:])
            elif line.words[0] == "server-template" and len(line.words) > 3:
                total += 1
                claimed += _takes_traffic(line.words[4:])
    return Census(claimed, total)


def _takes_traffic(options: tuple[str, ...]) -> bool:
    return "disabled" not in options and ("weight", "0") not in pairwise(options)
