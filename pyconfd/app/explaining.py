"""Explanations: those of the daemon, and how a command gets one from it or without it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from ipaddress import ip_address
from types import MappingProxyType
from urllib.parse import parse_qs, urlencode

import msgspec

from pyconfd import wiring
from pyconfd.admission.removal_protection import kept_back
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.daemon.loop import Daemon
from pyconfd.daemon.memory import Seen
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.queries import explain
from pyconfd.explain.request import ClientRequest, request_of
from pyconfd.explain.request_answer import explain_request
from pyconfd.fragments import of_presets
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import ServerNow, servers_now
from pyconfd.model.condition import Age
from pyconfd.model.context import Context, PresetName, Refusal, RefusalReason, in_order
from pyconfd.model.explanation import Explanation, InstanceState, RequestAnswer
from pyconfd.model.rendering import FragmentSet
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase, Status
from pyconfd.presets import registry
from pyconfd.printable import short_duration
from pyconfd.settings import Settings
from pyconfd.status.document import STALE_AFTER_S, sync_age_s
from pyconfd.status.page_client import AnswerTooLong, get
from pyconfd.status.redaction import redacted
from pyconfd.wiring import base_options

ANSWER_TIMEOUT_S = 30.0
"""The daemon reads its whole configuration and asks HAProxy for it: seconds where both are large."""


class ShownServers:
    """The servers as HAProxy shows them, asked for backend by backend over a connection of its own.

    ``why`` says why it cannot be asked, "" as long as it can or need not.
    """

    def __init__(self, settings: Settings, text: str, *, served: bool = True) -> None:
        self.why = ""
        self._runtime: Runtime | None = None
        self._known: dict[str, Mapping[str, ServerNow]] = {}
        self._checks: dict[str, Mapping[tuple[str, str], str]] = {}
        if not served:
            return
        runtime = Runtime()
        abilities = runtime.connect(stats_sockets(text, settings.haproxy.runtime_socket))
        if abilities.runtime:
            self._runtime = runtime
        else:
            runtime.close()
            self.why = abilities.why

    def __call__(self, backend: str) -> Mapping[str, ServerNow] | None:
        """Return the servers of a backend by name, None where HAProxy cannot be asked."""
        if self._runtime is None:
            return None
        if backend not in self._known:
            try:
                [answer] = self._runtime.server_states([backend])
                found = list(servers_now(answer)) if answer else []
            except NotConfirmed as error:
                self.why, self._runtime = str(error), None
                return None
            self._known[backend] = {each.name: each for each in found}
        return self._known[backend]

    def check(self, backend: str, server: str) -> str:
        """Return what the last health check of a server said, "" where that is not known."""
        if self._runtime is None:
            return ""
        if backend not in self._checks:
            try:
                self._checks[backend] = self._runtime.checks(backend)
            except NotConfirmed as error:
                self.why, self._runtime = str(error), None
                return ""
        return self._checks[backend].get((backend, server), "")

    def close(self) -> None:
        """Close the connection."""
        if self._runtime is not None:
            self._runtime.close()


Query = str | ClientRequest
"""A name, "" for everything that is refused; or a request."""


def ask_daemon(settings: Settings, query: Query) -> Explanation | TransientError:
    """Ask the daemon. Return why it does not answer where it does not.

    Raises:
        RejectedInput: what answers is no daemon that could explain.
    """
    if not settings.status.listen:
        return TransientError(Problem("status.listen", "the status page is switched off, so no daemon can be asked"))
    parameters = urlencode({"q": query} if query else {"refused": "yes"})
    if isinstance(query, ClientRequest):
        parameters = query.encoded
    try:
        body = get(settings.status, f"/explain?{parameters}", ANSWER_TIMEOUT_S)
        found = msgspec.json.decode(body, type=Explanation)
    except TransientError as error:
        return error
    except AnswerTooLong:
        raise
    except RejectedInput as error:
        message = "what answers there explains nothing: pyconfd consume or try, or an older pyconfd"
        remedy = "ask where pyconfd publish runs, restart an older one, or name the file with --snapshot"
        raise RejectedInput(Problem(error.problems[0].place, message, remedy)) from error
    except msgspec.MsgspecError as error:
        raise RejectedInput(Problem("explain", f"the daemon is of another version: {error}", "restart it")) from error
    if isinstance(query, ClientRequest) and found.request is None and not found.candidates:
        raise RejectedInput(
            Problem("explain", "the daemon is of an older version, which explains names only", "restart it")
        )
    return found


def explainer(settings: Settings, daemon: Daemon) -> Callable[[str], bytes]:
    """Return what answers the queries of ``/explain`` for a daemon, in a thread of its own."""

    def explained(query: str) -> bytes:
        given = parse_qs(query)
        try:
            name: Query = request_of(given) if "url" in given else given.get("q", [""])[0]
        except RejectedInput as error:
            asked = given.get("q", [""])[0]
            return msgspec.json.encode(_unanswered(asked, time.time(), InstanceState(), str(error), is_request=True))
        status, seen = daemon.status(), daemon.memory.seen
        instance = _instance(status, daemon.memory.outcome_since)
        if seen is None:
            why = "the daemon has not read the cluster and its fragments yet"
            is_request = isinstance(name, ClientRequest)
            shown = name if isinstance(name, str) else name.url
            return msgspec.json.encode(_unanswered(shown, status.now, instance, why, is_request=is_request))
        newest = daemon.newest()
        if status.live.paused and status.hold is None and newest is not None and newest is not seen.snapshot:
            seen = _translated(seen, newest, settings)
        without_hold = seen.without_hold if status.hold is not None else None
        kept = kept_back(seen.context, without_hold) if without_hold is not None else {}
        haproxy = wiring.serves_haproxy(settings)
        found = _explained(
            settings, name, seen, instance, status.now, asks_haproxy=haproxy, ages=daemon.memory.ages(), kept=kept
        )
        return msgspec.json.encode(found)

    return explained


def _unanswered(query: str, now: float, instance: InstanceState, why: str, *, is_request: bool) -> Explanation:
    """Return an answer without anything but why; also then the answer to a request has a ``request``."""
    looked_in = (f"nothing: {why}",)
    if not is_request:
        return Explanation(query, now, instance, looked_in=looked_in)
    answer = RequestAnswer((), uncovered=(f"where it goes: {why}",))
    return Explanation(query, now, instance, query, looked_in=looked_in, request=answer)


def _translated(seen: Seen, newest: Snapshot, settings: Settings) -> Seen:
    """Read what came since applying was paused: the loop has not looked at it, and nothing was rendered for it."""
    context = registry.translate(newest, settings.presets.names, seen.options)
    unreadable = (each for each in seen.refused if each.reason is RefusalReason.UNREADABLE)
    refused = in_order(context.refused, unreadable)
    return replace(seen, snapshot=newest, context=context, desired=None, refused=refused)


def _instance(status: Status, since: float) -> InstanceState:
    notes: tuple[str, ...] = ()
    age = sync_age_s(status, status.now)
    if age >= STALE_AFTER_S:
        how_old = f"for {short_duration(age)}" if status.source.last_sync_at else "yet"
        notes = (f"no API server confirmed what is known of the cluster {how_old}: see pyconfd status",)
    return InstanceState(
        phase=status.phase.value,
        generation=status.generation.number if status.generation else 0,
        since=status.haproxy.since if status.phase is Phase.DOWN else since,
        paused=status.live.paused is not None,
        hold_id=status.hold_id,
        held_since=status.hold.since if status.hold else 0.0,
        problems=tuple(redacted(problem) for problem in status.problems),
        notes=notes,
        spent_share=status.spent_share.namespaces if status.spent_share is not None else (),
    )


def explain_without_daemon(
    settings: Settings, query: Query, snapshot_files: tuple[str, ...], why: TransientError | None
) -> Explanation:
    """Read, render and compare with what is installed, as the daemon would begin to.

    Raises:
        RejectedInput: the fragments cannot be rendered.
        TransientError: the cluster does not answer either.
    """
    haproxy = wiring.serves_haproxy(settings)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir) if haproxy else None
    here = balancer if balancer is not None and not snapshot_files else None
    try:
        judge = balancer.check if balancer is not None else lambda _: None
        once = dry_run(settings, snapshot_files, here or EmptyBalancer(judge), lenient=True)
    except TransientError as error:
        raise TransientError(*(why.problems if why else ()), *error.problems) from error
    last = here.last_good() if here is not None else None
    running = last.rendering if last is not None else once.rendering
    notes = [
        f"no daemon answers ({problem.place}: {problem.message}): read from the cluster just now"
        for problem in (why.problems if why else ())
    ]
    if snapshot_files:
        notes.append("read from files: it is what would be served, without HAProxy")
    elif last is None and haproxy:
        notes.append("nothing was applied yet: it is what would be served")
    seen = Seen(once.snapshot, base_options(settings), once.context, once.rendering, tuple(once.refused), running)
    down = last is not None and here is not None and not here.runs()
    number, phase = last.generation.number if last else 0, Phase.DOWN.value if down else ""
    instance = InstanceState(phase=phase, generation=number, notes=tuple(notes))
    return _explained(settings, query, seen, instance, time.time(), asks_haproxy=here is not None)


def _explained(
    settings: Settings,
    query: Query,
    seen: Seen,
    instance: InstanceState,
    now: float,
    *,
    asks_haproxy: bool,
    ages: Mapping[Refusal, Age] = MappingProxyType({}),
    kept: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType({}),
) -> Explanation:
    shown = ShownServers(settings, seen.serving.text if seen.serving else "", served=asks_haproxy)
    evidence = Evidence(
        now=now,
        snapshot=seen.snapshot,
        context=seen.context,
        presets=settings.presets.names,
        options=seen.options,
        desired=seen.desired,
        running=seen.serving,
        refused=seen.refused,
        ages=ages,
        instance=instance,
        live=shown,
        check=shown.check,
        route=no_route if asks_haproxy else lambda _: "",
        fragments=_fragments(settings, seen.context),
        haproxy=wiring.serves_haproxy(settings),
        kept=kept,
        secret_namespaces=settings.kubernetes.secret_namespaces,
        variables=wiring.variables(settings) if isinstance(query, ClientRequest) else {},
        own_fragments=tuple(own_fragments(settings)) if isinstance(query, ClientRequest) else (),
    )
    with closing(shown):
        found = explain_request(query, evidence) if isinstance(query, ClientRequest) else explain(query, evidence)
    if not shown.why:
        return found
    notes = (*instance.notes, f"HAProxy could not be asked: {shown.why}")
    return msgspec.structs.replace(found, instance=msgspec.structs.replace(instance, notes=notes))


def no_route(address: str) -> str:
    """Return what is wrong with the way from this machine to an address of a pod; "" for nothing, or a name."""
    from pyconfd.vip.netlink import route_to  # noqa: PLC0415 - a sixth of the start of commands that ask no kernel

    try:
        route = route_to(str(ip_address(address)))
    except (OSError, ValueError):
        return ""
    if route is None:
        return f"this machine has no route to {address}"
    if not route.prefix:
        by = f", by {route.gateway}" if route.gateway else ""
        return f"this machine has no route to {address} but the default one{by}"
    return ""


def _fragments(settings: Settings, context: Context) -> Mapping[str, str]:
    texts = {template.name: template.text for template in context.templates}
    with suppress(PyconfdError):  # without them all but the line of the template can be explained
        texts |= {fragment.name: fragment.text for fragment in wiring.fragments(settings).fragments}
    return texts


_ROUTING = frozenset(
    [
        *("02-http.tmpl", "03-https.tmpl", "04-tcp.tmpl", "07-ingress.tmpl", "08-auth.tmpl", "08-gateway.tmpl"),
        *("08-rules.tmpl", "09-loadbalancer.tmpl"),
        *("http-routing.j2", "client.j2", "pool.j2", "tls.j2"),
    ]
)


def own_fragments(settings: Settings, found: FragmentSet | None = None) -> Iterator[str]:
    """Return which of the shipped fragments that route requests the operator changed, or misses for a preset in use.

    Where one is left out that listens, nothing listens there. ``found`` are other fragments than the installed ones.
    """
    needed = {"07-ingress.tmpl"} if PresetName.INGRESS in settings.presets.names else set()
    with suppress(PyconfdError):
        used = found or wiring.fragments(settings)
        own = {each.name: each.text for each in (*used.fragments, *used.includable)}
        for name, path in of_presets(settings.presets.names).items():
            is_used = name in _ROUTING and (name in own or name in needed)
            if is_used and own.get(name) != path.read_text(encoding="utf-8"):
                yield name
