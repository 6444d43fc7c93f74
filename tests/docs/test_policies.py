"""docs/policies.md has the vocabulary; ``PYCONFD_UPDATE_DOCS=1 pytest tests/docs/test_policies.py`` writes it."""

import os
import re
from pathlib import Path

from pyconfd.presets.policies.attached import field_of
from pyconfd.presets.policies.nginx import MEANINGS
from pyconfd.presets.policies.words import WORDS, PolicyWord

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
FIRST, LAST = "<!-- words -->\n", "<!-- end of words -->\n"


def test_each_annotation_of_ingress_nginx_is_on_its_page() -> None:
    page = (PAGE.parent / "migrating" / "ingress-nginx.md").read_text()
    assert not [name for name in MEANINGS if not re.search(rf"`{name}(: \w+)?`", page)]


def _cost(word: PolicyWord) -> str:
    return "reload" if word.reloads else "runtime update" if word.live else "profile"


def test_each_word_is_in_the_table() -> None:
    title = "| word | field | example | meaning | a new value |\n|---|---|---|---|---|\n"
    rows = title + "".join(
        f"| `{word.name}` | `{field_of(word.name)}`: {word.form} | `{word.example}` | {word.meaning} |"
        f" {_cost(word)} |\n"
        for word in WORDS.values()
    )
    head, _, rest = PAGE.read_text().partition(FIRST)
    found, _, tail = rest.partition(LAST)
    if "PYCONFD_UPDATE_DOCS" in os.environ:
        PAGE.write_text(f"{head}{FIRST}{rows}{LAST}{tail}")
    else:
        assert found == rows
