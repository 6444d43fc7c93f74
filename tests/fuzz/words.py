"""Words of policies that tenants say in the fuzzer, made of the vocabulary itself: a new word needs no line here.

Texts of a word are sound, or hostile: whatever may end a line, a quoted text or an entry of a map, or begin an
expression there. Which texts are sound is asked of the word.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

from pyconfd.presets.annotations import OWN_PREFIX
from pyconfd.presets.policies.attached import field_of
from pyconfd.presets.policies.nginx import MEANINGS, PREFIX, read_nginx
from pyconfd.presets.policies.words import KINDS, WORDS, Form, PolicyWord, asked_by

NGINX_CLASS = "nginx"
NETWORKS = ("198.51.100.0/25", "198.51.100.128/25", "0.0.0.0/0", "192.0.2.0/24, 2001:db8::/33", "2001:db8::/32")
CLIENTS = ("198.51.100.1", "198.51.100.200", "192.0.2.77", "203.0.113.9", "2001:db8::7", "2001:db8:8000::7")
"""Addresses of which each network lets in some."""
HOSTILE = (
    *("%[src]", "%[env(PATH)]", "%{+Q}[path]", "%", "%%", "%ci", "${HOME}", "$1", "\\1", "*"),
    *("a\nhttp-request deny", "a\r\nX-B: c", "a\0b", "\\", "a\\", "'", '"', '"; #', "' if TRUE #", "# comment"),
    *("{ }", "if TRUE", "unless { always_false }", "|| TRUE", "a|deny|4", " ", "\t", "", "-f /dev/null"),
    *("é", "\u2028", "\u202e", "\U0001d7d9", "\u0661\u0662", "-1", "0x10", "1e9", "9" * 400, "nan", "x" * 3_000),
    *("()", "(a+)+$", "(" * 64, "^(([a-z])+.)+[A-Z]([a-z])+$", "../../etc/passwd", "/etc/shadow"),
)
_USUAL = (
    *NETWORKS, "true", "false", "0", "1", "5", "60", "1000000", "10m", "1s", "5m", "/", "/app", "/app/$1", "a", "A, B",
    "cookie", "GET, PUT", "http://a.example", "https://www.example.com/new", "https://*.example.org", "a.example",
    "on", "off", "None", "http:/healthz", "https", "tcp", "Lax", "GET",
    "X-A: b", "X-A: if\nX-B: 100%", "X-A: #", "503", "301", "client", "route", "header:X-Key", "source", "random",
    "required", "basic", "429",
)  # fmt: skip
_BESIDE_NGINX = {
    "enable-cors": "true",
    "affinity": "cookie",
    "limit-rps": "7",
    "permanent-redirect": "http://a.example",
    "auth-url": "http://a/",
    "auth-secret": "staff",
}
"""Annotations that others of ingress-nginx say more of."""
_BESIDE = {
    "limit-rps": "7",
    "redirect": "http://a.example",
    "cors-allow-origins": "http://a.example",
    "session-cookie": "SESSION",
}
"""The same of words."""
_MOST_SOUND = 6
_PATHS_OF_NGINX = ("use-regex", "rewrite-target")

Texts = Mapping[str, str]


def _accepted(word: PolicyWord, text: str) -> bool:
    try:
        word.parse(text)
    except ValueError:
        return False
    return True


@cache
def sound(word: str) -> tuple[str, ...]:
    """Return texts that a word can be."""
    known = dict.fromkeys((WORDS[word].example, *(each.example for each in WORDS.values()), *_USUAL))
    return tuple(text for text in known if _accepted(WORDS[word], text))


@cache
def sound_of_nginx(name: str) -> tuple[str, ...]:
    """Return texts of an annotation of ingress-nginx that are words, or ask for nothing."""
    known = dict.fromkeys((*(each.example for each in WORDS.values()), *_USUAL))
    return tuple(text for text in known if any(_asks({**said, name: text}) for said in ({}, _BESIDE_NGINX)))


def _asks(said: Texts) -> bool:
    found = read_nginx({f"{PREFIX}{each}": text for each, text in said.items()})
    return not asked_by(found.words)[1]


def texts_of_words(rng: Random, kind: str, hostility: float) -> Texts:
    """Return words that an object of a kind says, each with its text; of the hostile ones some are none."""
    known = [name for name, word in WORDS.items() if kind in word.kinds or rng.random() < 0.02]
    # Networks more often than others: what they let in is followed by tests/fuzz/restrictions.py.
    names = rng.sample(known, rng.choice((1, 1, 2, 3, 5))) + rng.choices(("allow-networks", "deny-networks"))
    found = {name: _text(rng, sound(name), hostility) for name in rng.sample(names, rng.randint(1, len(names)))}
    if rng.random() < hostility:
        name = rng.choice(names)
        found[_misspelled(rng, name)] = found.pop(name, WORDS[name].example)
    return found


def _text(rng: Random, texts: Sequence[str], hostility: float) -> str:
    text = rng.choice(texts)
    if rng.random() >= hostility:
        return text
    bad = rng.choice(HOSTILE)
    at = rng.randint(0, len(text))
    longer = ", ".join([text] * rng.choice((65, 257, 400)))
    return rng.choice((bad, f"{text}{bad}", f"{bad}{text}", f"{text[:at]}{bad}{text[at:]}", f"{text}\n{bad}", longer))


def _misspelled(rng: Random, name: str) -> str:
    at = rng.randrange(len(name))
    return rng.choice((name[:at] + name[at + 1 :], name.upper(), name.replace("-", "_"), f"{name}s", f"x-{name}"))


class Way(NamedTuple):
    """One way to say words by annotations: for which kinds, and which annotations of an object it makes.

    ``class_name`` is that of Ingresses that say words so, "" for any.
    """

    kinds: frozenset[str]
    annotations: Callable[[Random, str, float], Texts]
    class_name: str = ""


def _of_our_own(rng: Random, kind: str, hostility: float) -> Texts:
    return {f"{OWN_PREFIX}{name}": text for name, text in texts_of_words(rng, kind, hostility).items()}


def _of_nginx(rng: Random, _: str, hostility: float) -> Texts:
    names = rng.sample([*MEANINGS], rng.choice((1, 2, 4)))
    found = {name: _text(rng, sound_of_nginx(name) or _USUAL, hostility) for name in names}
    if rng.random() < 0.3:
        found["whitelist-source-range"] = _text(rng, NETWORKS, hostility)
    if rng.random() < 0.3:
        found[_PATHS_OF_NGINX[0]] = rng.choice(("true", "true", "false", "1", "x"))
    if rng.random() < 0.2:
        found[_PATHS_OF_NGINX[1]] = _text(rng, ("/", "/$1", "/app/$2", "/app"), hostility)
    if rng.random() < hostility:
        name = rng.choice(names)
        found[_misspelled(rng, name)] = found.pop(name)
    own = _of_our_own(rng, "Ingress", hostility) if rng.random() < 0.2 else {}
    return {**{f"{PREFIX}{name}": text for name, text in found.items()}, **own}


WAYS: tuple[Way, ...] = (
    Way(frozenset().union(*(word.kinds for word in WORDS.values())), _of_our_own),
    Way(frozenset({"Ingress"}), _of_nginx, NGINX_CLASS),
)


def annotations(rng: Random, kind: str, class_name: str = "", hostility: float = 0.1) -> Texts:
    """Return annotations by which an object says words; mostly none."""
    ways = [way for way in WAYS if kind in way.kinds and way.class_name in {"", class_name}]
    if not ways or rng.random() < (0.2 if class_name == NGINX_CLASS else 0.5):
        return {}
    return dict(rng.choice(ways).annotations(rng, kind, hostility))


def fields(rng: Random, hostility: float) -> dict[str, Any]:
    """Return words as fields of a RoutePolicy: texts, or the list, number or boolean that the field is for."""
    kind = rng.choice(sorted(KINDS))
    found: dict[str, Any] = {}
    for name, text in texts_of_words(rng, kind, hostility).items():
        form = WORDS[name].form if name in WORDS else Form.TEXT
        found[field_of(name)] = text if rng.random() < 0.5 else _as_field(text, form)
    if rng.random() < hostility / 2:
        wrong: Any = rng.choice((None, 1.5, {"a": ["b"]}, [1, [2]], [["a\nb"]], True, -1, {}))
        found[rng.choice((*found, "x\ny", 'a"b', "%[src]"))] = wrong
    return found


def _as_field(text: str, form: Form) -> Any:
    if form is Form.LIST:
        return [each.strip() for each in text.split(",")]
    if form is Form.LINES:
        return text.split("\n")
    if form is Form.FLAG and text in {"true", "false"}:
        return text == "true"
    return int(text) if form is Form.NUMBER and text.isascii() and text.isdigit() and len(text) < 19 else text


def all_sound(kind: str) -> Iterator[Texts]:
    """Return annotations that say each word with several of its sound texts, beside what it may say more of."""
    for name, word in WORDS.items():
        beside = {f"{OWN_PREFIX}{each}": text for each, text in _BESIDE.items() if each[:4] == name[:4]}
        for text in sound(name)[:_MOST_SOUND] if kind in word.kinds else ():
            yield {**beside, f"{OWN_PREFIX}{name}": text}
