"""Which URL reaches which Service, and why others are not there; in lines for people. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyconfd.model.context import Context, Refusal
from pyconfd.model.preset import PresetName
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.trying.fronts import Front, asked
from pyconfd.trying.owners import Owner
from pyconfd.trying.probe import NOBODY, Answer, Question

MOST_SHOWN = 40
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Row:
    """``url`` reaches ``where``; ``command`` shows it."""

    url: str
    where: str
    command: str


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` is what answers, ``missing`` are sentences about what does not."""

    rows: tuple[Row, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behind:
    """``owners`` say whom a stand-in stands for; ``pods`` counts those of each Service that are in use."""

    owners: Mapping[str, Owner]
    pods: Mapping[str, int]

    def who(self, answer: Answer) -> str:
        """Return who answered, "" where no stand-in did."""
        owner = self.owners.get(answer.stand_in)
        if owner is None:
            return answer.stand_in
        return " or ".join(map(self._counted, owner.services)) or owner.name

    def _counted(self, service: str) -> str:
        count = self.pods.get(service, 0)
        return f"{service}, {count} {'pod' if count == 1 else 'pods'}"


def questions(all_fronts: Sequence[Front], names: Sequence[str]) -> Iterator[Question]:
    """Return what to ask: each port for every name, and for one that nobody has."""
    for front in all_fronts:
        if front.http or front.sni:
            yield from ((front, name) for name in (NOBODY, *names))
        if not front.http:
            yield front, ""


def table(
    answers: Mapping[Question, Answer],
    behind: Behind,
    snapshot: Snapshot,
    context: Context,
    unreadable: Sequence[Refusal],
) -> Table:
    """Put answers and refusals together; names below a wildcard are told where something else answers."""
    rows: list[Row] = []
    reached: set[str] = set()
    for (front, name), answer in answers.items():
        default = answers.get((front, _wildcard(front, name, answers) or NOBODY), Answer())
        owner = behind.owners.get(answer.stand_in)
        if owner is not None:
            reached.update(owner.services)
        row = _row(front, name, answer, default, behind)
        if row is not None:
            rows.append(row)
    refused = sorted({*context.refused, *unreadable})
    return Table(
        tuple(sorted(rows, key=lambda row: row.url)),
        (
            *(f"{each.ref} {each.field} {each.value}".rstrip() + f": {each.detail}" for each in refused),
            *_silent(snapshot, context, reached, refused, {name for _, name in answers}),
        ),
    )


def _wildcard(front: Front, name: str, answers: Mapping[Question, Answer]) -> str:
    """Return the nearest wildcard above a name that was asked for too, "" for none."""
    rest = name.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        if (front, f"*.{rest}") in answers:
            return f"*.{rest}"
    return ""


def _row(front: Front, name: str, answer: Answer, default: Answer, behind: Behind) -> Row | None:
    same = behind.who(answer) == behind.who(default) and answer.location == default.location
    if name and name != NOBODY and same:
        return None
    where = behind.who(answer)
    if answer.location:
        where = f"a redirect to {answer.location}"
    elif not where and name in {"", NOBODY} and answer.code == 200:
        where = "a page of HAProxy itself"
    if not where:
        return None
    if not front.http and not name:
        return Row(f"tcp port {front.port} ({front.proxy})", where, f"nc 127.0.0.1 {front.port}   # type something")
    tls = front.tls or not front.http
    scheme = "https" if tls else "http"
    if name == NOBODY:
        curl = f"curl{' -k' if tls else ''} {scheme}://127.0.0.1:{front.port}/"
        return Row(f"{scheme}://127.0.0.1:{front.port}/ (any other name)", where, curl)
    host = asked(name)
    if tls:
        return Row(
            f"{scheme}://{name}/",
            where,
            # The Host header without a port, as clients of port 443 send it: rules may compare it as a whole.
            f"curl -k --connect-to {host}:443:127.0.0.1:{front.port} https://{host}/",
        )
    return Row(f"{scheme}://{name}/", where, f"curl -H 'Host: {host}' http://127.0.0.1:{front.port}/")


def _silent(
    snapshot: Snapshot, context: Context, reached: set[str], refused: Sequence[Refusal], names: set[str]
) -> Iterator[str]:
    """Tell of Services that nothing reaches and that nobody refused."""
    told = {f"{each.ref.namespace}/{each.ref.name}" for each in refused}
    asked_for: dict[str, str] = {}
    given = context.names.get("domains", {})
    for domain, items in given.items() if isinstance(given, Mapping) else ():
        if isinstance(items, Mapping):
            asked_for[f"{items.get('namespace')}/{items.get('name')}"] = str(domain)
    # Who asks with another preset is not known by name.
    known = not any(name in context.names for name in PresetName if name is not PresetName.DOMAINS)
    idle: list[str] = []
    unasked = 0
    for key in sorted(snapshot.services):
        service = f"{key.namespace}/{key.name}"
        if service in reached or service in told:
            continue
        if not _has_ready(snapshot, key) and (service in asked_for or not known):
            name = asked_for.get(service)
            yield f"{service}: no pod is ready" + (f", so {name} is answered with {_UNAVAILABLE}" if name else "")
        elif service in asked_for and asked_for[service] not in names:
            unasked += 1
        elif service in asked_for:
            yield f"{service}: it is there, but no answer came for {asked_for[service]}"
        else:
            idle.append(service)
    if unasked:
        yield f"{unasked} more names were not asked for: there are too many for a table"
    if idle:
        shown = ", ".join(idle[:8]) + (f" and {len(idle) - 8} more" if len(idle) > 8 else "")
        yield f"nothing asks for {shown}: no annotation, label or ConfigMap of the preset, or no template uses it"


def _has_ready(snapshot: Snapshot, key: Key) -> bool:
    slices = (
        piece
        for other, piece in snapshot.endpointslices.items()
        if other.namespace == key.namespace
        and (piece.metadata.labels or {}).get("kubernetes.io/service-name") == key.name
    )
    if any(
        endpoint.conditions is None or endpoint.conditions.ready is not False
        for piece in slices
        for endpoint in piece.endpoints or ()
    ):
        return True
    endpoints = snapshot.endpoints.get(key)
    return any(subset.addresses for subset in (endpoints.subsets or ())) if endpoints else False


def lines(now: Table, former: Table | None) -> Iterator[str]:
    """Return the whole table, or what differs from the former one."""
    if former is None:
        yield from _rows(now.rows, "")
        if not now.rows:
            yield "  nothing answers"
        if now.missing:
            yield f"Not there ({len(now.missing)}):"
            yield from _limited([f"  {each}" for each in now.missing])
        return
    known, gone = set(former.rows), set(former.rows) - set(now.rows)
    new_urls = {row.url for row in now.rows}
    yield from _rows([row for row in now.rows if row not in known], "now ")
    yield from (f"  gone {row.url}" for row in former.rows if row in gone and row.url not in new_urls)
    before = set(former.missing)
    yield from (f"  not there {each}" for each in now.missing if each not in before)


def _rows(rows: Sequence[Row], mark: str) -> Iterator[str]:
    found: list[str] = []
    width = max((len(row.url) for row in rows), default=0)
    for row in rows:
        found += [f"  {mark}{row.url:<{width}}  ->  {row.where}", f"      {row.command}"]
    yield from _limited(found, 2 * MOST_SHOWN)


def _limited(found: Sequence[str], most: int = MOST_SHOWN) -> Iterator[str]:
    yield from found[:most]
    if len(found) > most:
        yield f"  and more: {len(found) - most} lines"
