"""docs/policies.md has the vocabulary; ``PYCONFD_UPDATE_DOCS=1 pytest tests/docs/test_policies.py`` writes it."""

import os
import re
from collections import defaultdict
from pathlib import Path

from pyconfd.presets.policies.attached import field_of
from pyconfd.presets.policies.nginx import MEANINGS
from pyconfd.presets.policies.nginx_snippets import SNIPPET
from pyconfd.presets.policies.words import GROUPS, KINDS, PolicyWord

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
FIRST, LAST = "<!-- words -->\n", "<!-- end of words -->\n"
_COLUMNS = ("word", "field", "example", "meaning", "of ingress-nginx", "if it is wrong", "a new value")
_OF_SNIPPETS = ("request-headers", "remove-request-headers", "response-headers", "remove-response-headers")
_BESIDE = {
    "affinity": "cookie",
    "auth-secret": "a",
    "auth-tls-secret": "a",
    "auth-url": "a",
    "enable-cors": "true",
    "limit-rps": "5",
    "permanent-redirect": "https://a.example",
    "proxy-ssl-verify": "on",
    "temporal-redirect": "https://a.example",
}
"""Annotations without which others say nothing."""
_SAMPLES = ("true", "cookie", "on", "5", "https://a.example")


def test_each_annotation_of_ingress_nginx_is_on_its_page() -> None:
    page = (PAGE.parent / "migrating" / "ingress-nginx.md").read_text()
    assert not [name for name in MEANINGS if not re.search(rf"`{name}(: \w+)?`", page)]


def _words_of(name: str) -> set[str]:
    """Return the words that an annotation of ingress-nginx makes, of some of its texts."""
    found = set()
    for text in _SAMPLES:
        for said in ({**_BESIDE, name: text}, {name: text}):
            found |= set(dict(MEANINGS[name](text, said)))
    return found


def _names_of_nginx() -> dict[str, list[str]]:
    """Return the annotations for each word: the one of its name, else the ones that say it with the fewest words."""
    by_word = defaultdict(list)
    for name in MEANINGS:
        for word in (made := _words_of(name)):
            by_word[word].append((word != name, len(made), name))
    found = {}
    for word, names in by_word.items():
        least = min(names)[:2]
        found[word] = [name for *rank, name in names if tuple(rank) == least]
    return found | {word: [SNIPPET] for word in _OF_SNIPPETS}


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _cost(word: PolicyWord) -> str:
    return "reload" if word.reloads else "runtime update" if word.live else "profile"


def _if_wrong(word: PolicyWord, group: str) -> str:
    return "403" if word.restricts else "no canary" if group == "Canary" else "no effect"


def _meaning(word: PolicyWord) -> str:
    others = [kind for kind in KINDS if kind not in word.kinds]
    only = f" (of an {word.kinds[0]} only)" if len(word.kinds) == 1 else f" (not of a {others[0]})" if others else ""
    return f"{word.meaning}{only}"


def test_each_word_is_in_the_table() -> None:
    of_nginx = _names_of_nginx()
    title = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"
    tables = []
    for group, words in GROUPS.items():
        rows = (
            (
                f"`{word.name}`",
                f"`{field_of(word.name)}`: {word.form}",
                f"`{word.example}`",
                _meaning(word),
                ", ".join(f"`{name}`" for name in of_nginx.get(word.name, ())),
                _if_wrong(word, group),
                _cost(word),
            )
            for word in words
        )
        tables.append(f"### {group}\n\n{title}" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    index = ",\n".join(f"[{group}](#{_anchor(group)})" for group in GROUPS)
    text = f"{index}.\n\n" + "\n".join(tables)
    head, _, rest = PAGE.read_text().partition(FIRST)
    found, _, tail = rest.partition(LAST)
    if "PYCONFD_UPDATE_DOCS" in os.environ:
        PAGE.write_text(f"{head}{FIRST}{text}{LAST}{tail}")
    else:
        assert found == text
