"""The list of allowed directives against the haproxy that is installed, with random and hostile lines.

``zzq`` is no directive, sample or converter of any HAProxy. Wherever HAProxy looks one of that name up, it says so:
then our reader has to have seen it there too. ``PYCONFD_FUZZ_CASES`` and ``PYCONFD_FUZZ_SEED`` make it longer or other.
"""

import os
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.removed import REMOVED
from pyconfd.haproxy.config.text import SECTION_KEYWORDS
from pyconfd.predecessors.allowed import Boundaries, UnreadableLineError, judge, split
from pyconfd.render.filters import quote
from pyconfd.render.invalid import InvalidValueError
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy

CASES = int(os.environ.get("PYCONFD_FUZZ_CASES", "150"))
SEED = int(os.environ.get("PYCONFD_FUZZ_SEED", "1"))
LINES_A_RUN = 40
"""HAProxy gives up after 50 errors."""

CANARY = "zzq"
LOOKED_UP = re.compile(r"unknown (?:(?:fetch method|converter) 'zzq'|keyword 'zzq' in '\w+' section)")
BEFORE = """\
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
listen other
    bind 127.0.0.1:1
resolvers r
cache c
userlist u
"""

CORPUS = """\
acl a path_beg /x
acl a req.hdr(host),lower -i -m str x y
acl a str(x) lower x
balance hash path
balance hdr(host) use_domain_only
balance roundrobin
bind 127.0.0.1:1 name x alpn h2 maxconn 10
capture request header Host len 10
compression algo gzip
cookie S insert indirect nocache
declare capture request len 10
default_backend other
description x
error-log-format x
filter bwlim-in n key src table other limit 1m min-size 1k
filter bwlim-out n default-limit 1m default-period 1s
filter compression
force-persist if { src 127.0.0.1 }
http-after-response set-header X y
http-after-response set-var(txn.x) str(x)
http-check connect port 80 addr 127.0.0.1 sni x
http-check expect status 200-399
http-check expect rstatus ^2 on-success x status-code int(1)
http-check send meth GET uri /x hdr Host x body y
http-check send uri-lf /x body-lf y
http-check set-var(check.x) str(x)
http-check set-var-fmt(check.x) x
http-error status 503 content-type text/plain string x
http-request add-header X y if { path /x } || !{ path /y }
http-request auth realm x if TRUE
http-request cache-use c
http-request capture req.hdr(x) len 10
http-request del-header X -m beg
http-request deny deny_status 403 content-type text/plain lf-string x hdr A b
http-request do-resolve(txn.x,r,ipv4) hdr(host),lower
http-request early-hint Link x
http-request normalize-uri path-merge-slashes
http-request pause 1s
http-request redirect location /x code 301
http-request redirect prefix /x drop-query append-slash
http-request redirect scheme https code 301 if !{ ssl_fc }
http-request replace-header X a b
http-request replace-path a b
http-request replace-uri a b
http-request replace-value X a b
http-request return status 200 content-type text/plain lf-string x hdr A b
http-request sc-add-gpc(0,0) int(1)
http-request sc-set-gpt0(0) int(1)
http-request set-bandwidth-limit n limit 1m period 1s
http-request set-dst hdr(x)
http-request set-dst-port int(80)
http-request set-fc-mark int(1)
http-request set-header X y unless { path /x }
http-request set-log-level silent
http-request set-mark 1
http-request set-method GET
http-request set-path /x
http-request set-priority-class int(1)
http-request set-query x
http-request set-retries 1
http-request set-src hdr(x)
http-request set-src-port int(80)
http-request set-timeout server 5s
http-request set-timeout tunnel int(5)
http-request set-tos 1
http-request set-uri /x
http-request set-var(txn.x) str(x),lower lower
http-request set-var-fmt(txn.x) x
http-request tarpit deny_status 429
http-request track-sc0 src table other
http-request use-service prometheus-exporter if { path /metrics }
http-request wait-for-body time 1s at-least 1k
http-response cache-store c
http-response capture res.hdr(x) id 0
http-response return status 200 content-type text/plain string x
http-response set-header X y
http-response set-status 503 reason x
http-reuse safe
http-send-name-header X
log 127.0.0.1:514 local0
log-format x
log-format-sd x
monitor fail if { nbsrv lt 1 }
monitor-uri /x
option httpchk GET /x HTTP/1.1
redirect location /x if { path /y }
server s 127.0.0.1:1 check inter 1s weight 1 cookie x
server s 127.0.0.1:1 ssl verify none sni req.hdr(host) check-sni x
server s 127.0.0.1:1 pool-conn-name req.hdr(host)
stats auth x:y
stats http-request allow if { src 127.0.0.1 }
stats uri /x
stick match src table other
stick on src table other if { path /x }
stick store-request req.cook(x),lower table other
stick store-response res.cook(x)
stick-table type string len 32 size 1m expire 1h store gpc0
tcp-check connect port 80
tcp-check expect string x
tcp-check send x
tcp-check send-lf x
tcp-check set-var(check.x) str(x)
tcp-request connection accept if { src 127.0.0.1 }
tcp-request connection track-sc0 src
tcp-request content capture req.ssl_sni len 10
tcp-request content set-var(sess.x) str(x)
tcp-request content track-sc1 req.hdr(x) table other
tcp-request session set-var(sess.x) src
tcp-response content set-var(sess.x) str(x)
timeout client 1s
unique-id-format x
use-server s if { path /x }
use_backend other if { hdr(host) -i x }
""".splitlines()
"""A line for each place where HAProxy reads a word in its own way."""


def told(text: str) -> str:
    done = subprocess.run(
        [BINARY, "-c", "-f", "/dev/stdin"], input=text.encode(), capture_output=True, check=False, timeout=120
    )
    return done.stderr.decode(errors="replace")


def final_line(line: str) -> str | None:
    """Return what the judge makes of a line and lets through, None if it refuses."""
    try:
        return judge("fuzz", f"listen l\n    {line}", Boundaries()).text.partition("\n")[2]
    except RejectedInput:
        return None


# -- words and sections


SECTIONS = ["frontend", "backend", "listen", "peers", "resolvers", "userlist", "cache", "http-errors"]
PIECES = [*"abz019 \t\t\\\\'\"#$.{}[]()%,", "\\t", "\\\t", "\\n", "\\ ", "\\\\", "\\#", "\\'", '\\"', "\\$", "''", '""']


def random_line(rng: random.Random) -> str:
    header = rng.choice(SECTIONS)
    cut = rng.randrange(len(header))
    written = rng.choice([header, f'"{header}"', f"{header[:cut]}'{header[cut:]}'", f"\t{header}", header.upper()])
    if rng.random() < 0.15:
        return f"{written} n{rng.randrange(10**9)}{rng.choice(['', ' # x', '#x'])}"
    if rng.random() < 0.1:
        return rng.choice(["global", " global # x", '"global"'])
    return "zz" + "".join(rng.choices(PIECES, k=rng.randrange(8)))


def expected(lines: list[str]) -> dict[int, tuple[str, str]]:
    found, section = {}, ""
    for number, line in enumerate(lines, start=1):
        words = split(line)
        if words and words[0] in SECTION_KEYWORDS:
            section = words[0]
        elif words:
            found[number] = (words[0], section)
    return found


def test_haproxy_reads_the_same_words_in_the_same_sections() -> None:
    rng = random.Random(SEED)
    compared = 0
    for _run in range(CASES // 10):
        lines = ["global"]
        while len(lines) < LINES_A_RUN:
            try:
                words = split(line := random_line(rng))
            except UnreadableLineError:
                continue
            if all("\n" not in word for word in words[:1]) and len(words) < 60:
                lines.append(line)
        output = told("".join(f"{line}\n" for line in lines))
        ours = expected(lines)
        said = re.findall(r"stdin:(\d+)\] ?: unknown keyword '(.*)' in '?([a-z-]+)'? section", output)
        for number, keyword, section in said:
            assert ours.get(int(number)) == (keyword, section.replace("users", "userlist")), lines[int(number) - 1]
        compared += len(said)
    assert compared > CASES


# -- samples


JUNK = [*"aa/. '\"\\(){}[]%,", "\\'", '\\"', "\\)", "%[", "''", "()", CANARY]
ARGUMENTS_OF_SAMPLES = [*"a'\"\\(((),", "\\)", "\\,", "()", "zzq()", ",zzq(", ",zzq"]
FLAGS = ["", "", "{+Q}", "{a{b}", "{(}", "(a{b)", "(%)", "{%}", "(a){b{}"]
FETCHES = ["str(x)", "path", "hdr(host)", "url_param(a)", "req.fhdr(a,1)", CANARY, CANARY]
CONVERTERS = ["lower", "upper", "length", "field(1,/)", "regsub(a,b)", CANARY]


def junk(rng: random.Random, pieces: list[str], most: int) -> str:
    return "".join(rng.choices(pieces, k=rng.randrange(most)))


def random_expression(rng: random.Random) -> str:
    fetch = rng.choice([*FETCHES, *(f"str({junk(rng, ARGUMENTS_OF_SAMPLES, 6)})" for _ in FETCHES)])
    converters = (rng.choice([*CONVERTERS, f"concat({junk(rng, JUNK, 4)})"]) for _ in range(rng.randrange(3)))
    return rng.choice([",", ",", ",,"]).join([fetch, *converters])


def random_format(rng: random.Random) -> str:
    flags = rng.choice([*FLAGS, f"{{{junk(rng, JUNK, 4)}}}", f"({junk(rng, JUNK, 3)})"])
    before, after = (rng.choice(["", junk(rng, JUNK, 4)]) for _ in "ba")
    return f"{before}%{flags}[{random_expression(rng)}]{after}"


EXPRESSION_LINES: list[tuple[Callable[[random.Random], str], str]] = [
    *[(random_expression, "acl a {} -m found"), (random_format, "use_backend {}")] * 8,
    (random_expression, "http-request set-var(txn.x) {}"),
    (random_expression, "http-request set-header X y if {{ {} -m found }}"),
    (random_expression, "server s 127.0.0.1:1 sni {}"),
    (random_format, "http-request set-header X {}"),
    (random_format, "log-format {}"),
]
"""Most are of the kind at which HAProxy does not stop, so that one run tries many."""


def expression_lines(rng: random.Random) -> Iterator[str]:
    while True:
        generate, line = rng.choice(EXPRESSION_LINES)
        try:
            yield line.format(quote(generate(rng)))
        except InvalidValueError:
            continue


def lines_looked_up(lines: list[str]) -> list[str]:
    """Return those in which HAProxy looked ``zzq`` up. It stops at some errors: what it complained of is left out."""
    found: list[str] = []
    for at in range(0, len(lines), LINES_A_RUN):
        left = lines[at : at + LINES_A_RUN]
        while left:
            parts = [BEFORE, *(f"listen l{number}\n{line}\n" for number, line in enumerate(left))]
            owners = [number - 1 for number, part in enumerate(parts) for _ in range(part.count("\n"))]
            output = told("".join(parts))
            wrong: set[int] = set()
            for alert in output.splitlines():
                if named := re.search(r"stdin:(\d+)\]", alert):
                    index = owners[int(named[1]) - 1]
                    wrong.add(index)
                    found += [left[index]] if LOOKED_UP.search(alert) else []
                else:
                    assert not LOOKED_UP.search(alert), output
            if not wrong:
                break
            left = [line for index, line in enumerate(left) if index not in wrong]
    return found


def disagreements(lines: Iterable[str]) -> tuple[list[str], int]:
    """Return the lines in which HAProxy looked up what the judge let through, and how many passed the judge."""
    passed = [final for line in lines if (final := final_line(line)) is not None]
    return lines_looked_up([line for line in passed if CANARY in line]), len(passed)


def test_no_sample_passes_that_is_not_on_the_list() -> None:
    lines = list(islice(expression_lines(random.Random(SEED)), CASES * 20))
    wrong, passed = disagreements(lines)
    assert wrong == []
    assert passed > CASES
    assert len(lines_looked_up(lines[:CASES])) > CASES / 10, "these lines try nothing"


# -- places that take a sample


def changed_lines(rng: random.Random) -> list[str]:
    """Return each line of the corpus with ``zzq`` in place of each word, or behind it."""
    found = []
    for line in CORPUS:
        words = line.split()
        for at in range(1, len(words)):
            for canary in (CANARY, f"%[{CANARY}]"):
                found.append(" ".join([*words[:at], canary, *words[at + 1 :]]))
                found.append(" ".join([*words[: at + 1], canary, *words[at + 1 :]]))
    rng.shuffle(found)
    return found


def test_no_place_takes_a_sample_unseen() -> None:
    lines = [line for line in changed_lines(random.Random(SEED)) if final_line(line) is not None]
    tried = lines[: CASES * 2]
    assert disagreements(tried) == ([], len(tried))
    assert len(tried) > len(CORPUS)


def test_the_corpus_is_allowed() -> None:
    assert [line for line in CORPUS if final_line(line) is None] == []


# -- removed directives


ARGUMENTS = [
    *[
        "X:",
        "^X:.*",
        "a",
        "\\ ",
        "\\n",
        "\\r\\n",
        "\\t",
        "\\'",
        '\\"',
        "'",
        '"',
        "\\\\",
        "#",
        "%",
        "%[",
        "]",
        " ",
        "if",
    ],
    *[
        "\\n",
        f"\\n{CANARY}",
        CANARY,
        "global",
        "program\\ x",
        "GET",
        "/x",
        "HTTP/1.1\\r\\nHost:\\ a",
        "{",
        "}",
        "path",
        f"%[{CANARY}]",
    ],
]


def removed_lines(rng: random.Random) -> Iterator[str]:
    while True:
        entry = rng.choice(REMOVED)
        written = rng.choice(["", "X:\\ a", "^X:.*", "1", "GET /x HTTP/1.1\\r\\nHost:\\ a"])
        yield f"{' '.join(entry.words)} {written}{''.join(rng.choices(ARGUMENTS, k=rng.randrange(7)))}"


def test_a_removed_directive_brings_nothing_else_with_it() -> None:
    wrong, passed = disagreements(islice(removed_lines(random.Random(SEED)), CASES * 20))
    assert wrong == []
    assert passed > CASES / 3
