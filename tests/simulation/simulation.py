"""Plays steps, and says after each whether every promise was kept."""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from pyconfd.errors import PyconfdError
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.balancer import CUT_SHORT
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.plan import Noop
from pyconfd.model.snapshot import Key, Resource
from pyconfd.sources.kubernetes.ownership_record import LOOK_EVERY_S
from pyconfd.sources.kubernetes.status_backlog import Asked
from tests.simulation.cluster import (
    BALANCED,
    BY_INGRESS,
    EVIL,
    GATED,
    HTTP_SERVICES,
    LOGIN,
    MOST_PODS,
    NAMES,
    POOLED,
    START,
    THIEF_BY_INGRESS,
    THIEF_BY_PATH,
    WITH_TLS,
    Lie,
    Objects,
    Poison,
    State,
    changed,
    host,
    pod_address,
    thief_address,
    told,
    written,
)
from tests.simulation.fresh import fresh, names_of
from tests.simulation.place import LONG_S, RLIM_INFINITY, Place
from tests.simulation.steps import Step
from tests.simulation.writing import IDENTITY, differences
from tests.world.clients import ask, presented_to
from tests.world.haproxy import wait_until

_PATIENCE_S = 20.0
_PAUSES = 0.1, 1.0, 5.0, 12.0, 1.5 * LONG_S
_DISKS = RLIM_INFINITY, 0, 700, 4000
"""Bytes that a file may have: as many as it likes, none, too few for a configuration, maybe enough."""
_EDITS = (
    "",
    "# a note: {two}\n",
    "{{% fro %}}\n",
    "backend broken\n    blance roundrobin\n",
    "# {{{{ nothing }}}}\n",
)
_REMEMBERED = 12
_CRASHES = PyconfdError, ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError
"""By what a bug shows that ends pyconfd: that is a promise not kept too."""


class BrokenPromiseError(AssertionError):
    """A promise was not kept; ``at`` is the position of the step."""

    def __init__(self, at: int, step: Step, why: str) -> None:
        super().__init__(f"step {at} {tuple(step)}: {why}")
        self.at = at


class Simulation:
    """``survived`` counts the faults after whose step every promise was kept."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.survived: Counter[str] = Counter()
        self.truth: State = START
        self.shown: State = START
        self._past: list[State] = [START]
        self.lie, self._chance, self._old = Lie.NONE, 0, START
        self._fault = ""
        self._edited = False
        self._served: set[int] = set()
        """Services that were served when last asked, and that nothing has happened to since."""
        self._addresses: dict[int, str] = {}
        """Those of the pool at which ``POOLED`` were served, for as long as these are there."""
        self._presents: set[int] = set()
        """Those of them whose certificate was presented."""
        self.place.answers = self._answer
        self._ops: Mapping[str, Callable[[int, int], None]] = {
            "pods": self._pods,
            "scale to nothing": lambda at, _: self._change(at, pods=0),
            "appear": self._appear,
            "vanish": lambda at, _: self._change(at, there=False),
            "poison": self._poison,
            "heal": lambda at, _: self._change(at, poison=Poison.NONE),
            "thief": self._thief,
            "renew": lambda which, _: self._change(WITH_TLS, certificate=which, broken=False),
            "break secret": lambda _, __: self._break_secret(),
            "repair secret": lambda _, __: self._change(WITH_TLS, broken=False),
            "lie": self._lies,
            "truth": lambda _, __: self._tell(Lie.NONE),
            "reload": self._reload,
            "disk": self._disk,
            "port": self._port,
            "template": self._template,
            "kill": self._kill,
            "lose names": self._lose_names,
            "haproxy dies": self._restart_haproxy,
            "pass": lambda one, _: self.place.run_for(_PAUSES[one]),
            "allow": lambda _, __: self._allow(),
            "calm": lambda _, __: self.calm(),
        }

    def close(self) -> None:
        """End everything."""
        self.place._stack.close()

    def play(self, steps: Sequence[Step], progress: Callable[[int], None] = lambda _: None) -> None:
        """Play ``steps``, then end all faults; raises BrokenPromiseError."""
        with structlog.testing.capture_logs() as logs:
            self.place.begin()
            self.place.run_for(5.0)
            try:
                for at, step in enumerate([*steps, Step("calm")]):
                    del logs[:-200]
                    self._step(at, step)
                    progress(at)
            finally:
                self.logs: list[Any] = logs
                self.place.end()

    def _step(self, at: int, step: Step) -> None:
        self._fault = ""
        try:
            self._ops[step.kind](step.one, step.two)
            self.place.run_for(0.3)
            self._keeps_its_promises()
        except (AssertionError, *_CRASHES) as error:
            raise BrokenPromiseError(at, step, f"{type(error).__name__}: {error}") from error
        if self._fault:
            self.survived[self._fault] += 1

    # What the API shows

    def _answer(self) -> Objects | None:
        api, place = self.place.api, self.place
        api.keep(written(self.truth, place.ports, place.pairs))
        api.is_silent = self.lie is Lie.SILENT
        if api.is_silent:
            return None
        shown = told(self.lie, self.truth, self._old, self._chance)
        if not self.lie.is_total_loss:  # that is not believed: what was shown before it goes on
            self.shown = shown
        objects = written(shown, place.ports, place.pairs, unready=self.lie is Lie.ALL_UNREADY)
        objects = api.with_statuses(objects)
        if self.lie is Lie.NO_SLICES:
            return {key: each for key, each in objects.items() if key[0] is not Resource.ENDPOINTSLICES}
        return objects

    def _show(self, *, listed: bool) -> None:
        objects = self._answer()
        if objects is not None:
            self.place.source.show(objects, listed=listed)

    def _change(self, at: int, **changes: Any) -> None:
        self._past = [*self._past[-_REMEMBERED:], self.truth]
        self.truth = changed(self.truth, at, **changes)
        self._show(listed=False)

    def _pods(self, at: int, pods: int) -> None:
        if self.truth[at].there:
            self._change(at, pods=pods)

    def _appear(self, at: int, pods: int) -> None:
        former = self.truth[at]
        self._change(at, there=True, pods=pods, life=former.life + (not former.there))

    def _poison(self, at: int, kind: int) -> None:
        if at == BALANCED and Poison(kind) is not Poison.BAD_ENDPOINT:
            return  # the others are about names
        if at == GATED and Poison(kind) in {Poison.REFUSED_BY_HAPROXY, Poison.FAILS_IN_TEMPLATE}:
            return  # these are about annotations of Services
        if at not in BY_INGRESS and Poison(kind) is Poison.OTHER_CLASS:
            return
        self._change(at, poison=Poison(kind))
        self._fault = f"poison: {Poison(kind).name.lower().replace('_', ' ')}"

    def _thief(self, at: int, there: int) -> None:
        self._change(at, thief=bool(there))
        self._fault = "another namespace wants a name that is taken" if there else ""

    def _break_secret(self) -> None:
        self._change(WITH_TLS, broken=True)
        self._fault = "Secret: its key cannot be used"

    def _lies(self, kind: int, chance: int) -> None:
        self._old = self._past[chance % len(self._past)]
        self._chance = chance
        self._tell(Lie(kind))
        self._fault = f"API server: {self.lie.name.lower().replace('_', ' ')}"

    def _tell(self, lie: Lie) -> None:
        self.lie = lie
        self._show(listed=True)

    # What else goes wrong

    def _reload(self, mode: int, _: int) -> None:
        self.place.reload_mode(mode)
        self._fault = ("", "reload: fails", "reload: lies")[mode]

    def _disk(self, which: int, _: int) -> None:
        self.place.most_bytes = _DISKS[which]
        self._fault = "disk: full" if which else ""

    def _port(self, taken: int, _: int) -> None:
        if not taken:
            self.place.close_foreigner()
        elif self.place.take_port():
            self._fault = "port: taken by somebody else"

    def _template(self, which: int, two: int) -> None:
        self.place.edit(_EDITS[which].format(two=two))
        self._fault = "fragment: refused" if which > 1 else ""

    def _kill(self, at: int, die_before: int) -> None:
        self._forget_what_is_not_on_disk()
        self._pods(at, 1 + die_before % ((1 << MOST_PODS) - 1))
        in_the_middle = self.place.kill(die_before)
        self._fault = "pyconfd: killed " + ("in the middle of a change" if in_the_middle else "while all was done")

    def _lose_names(self, _: int, __: int) -> None:
        """A lost file loses no name that somebody has had for long enough to be recorded in the cluster."""
        if self.lie is not Lie.NONE:
            return
        earlier = self.place.names()
        self.place.run_for(2 * LOOK_EVERY_S)
        self._forget_what_is_not_on_disk()
        before = dict(earlier.items() & self.place.names().items())
        self.place.lose_names()
        self.place.run_for(1.0)
        after = self.place.names()
        lost = {name: (before[name], after.get(name)) for name in before if after.get(name) != before[name]}
        assert not lost, f"names that changed hands: {lost}"
        self._fault = "pyconfd: killed, and its file of names lost"

    def _restart_haproxy(self, _: int, __: int) -> None:
        self._forget_what_is_not_on_disk()
        self.place.restart_haproxy()
        self._fault = "haproxy: killed and started with what lies on disk"

    def _forget_what_is_not_on_disk(self) -> None:
        """Expect nothing of what went live and may not have come to a full disk: who restarts knows just that."""
        balancer = self.place.balancer
        # A pyconfd that was killed on a full disk may have left a process that serves more than the file: its successor
        # says so, and goes on as it is until something newer can be loaded.
        if (
            self.place.most_bytes != RLIM_INFINITY
            or balancer.file_behind
            or CUT_SHORT in getattr(balancer.refresh(), "details", ())
        ):
            self._served.clear()
            self._addresses.clear()
            self._presents.clear()

    def _allow(self) -> None:
        """Allow a loss, where the API says the truth."""
        if self.lie is Lie.NONE:
            self.place.run_for(1.0)
            hold_id = self.place.daemon.status().hold_id
            self.place.bed.allowed |= {hold_id} if hold_id else set()

    def calm(self) -> None:
        """End all faults but those of objects; what serves then is what a new pyconfd would serve."""
        place = self.place
        place.close_foreigner()
        place.reload_mode(0)
        place.most_bytes = RLIM_INFINITY
        place.edit("")
        # Who is in quarantine keeps its name if it had it: a new pyconfd does not know that.
        self.truth = tuple(replace(each, thief=each.thief and not each.is_quarantined) for each in self.truth)
        bad = [at for at, each in enumerate(self.truth) if each.is_quarantined]
        if bad and not any(each.is_healthy for each in self.truth):
            # Nobody is left out where nothing would be left: who has the past serves it, who is new serves nothing.
            self.truth = changed(self.truth, bad[0], poison=Poison.NONE, pods=1)
        self._tell(Lie.NONE)
        place.run_for(2 * LONG_S)
        for _ in range(3):  # what is lost in truth waits for the operator
            self._allow()
            place.run_for(LONG_S)
        last = place.balancer.last_good()
        assert last is not None
        wanted, asked = fresh(place)
        assert last.rendering.text == wanted.text, f"not as a new one: {_differences(last.rendering.text, wanted.text)}"
        assert last.rendering.files == wanted.files, "other maps than a new one"
        assert place.haproxy.conf.read_text() == mark(wanted.text, wanted.digest), "the file is not level"
        looked = place.balancer.refresh()
        assert isinstance(looked, Noop), looked
        self._statuses_are_as_asked(asked)
        strangers = {name.name for name in names_of(place, "strangers")}
        for at, each in enumerate(self.truth):
            pods = each.pods if each.is_healthy else 0
            self._serves_just_its_pods(at, pods, thief=each.thief, has_thief=at not in POOLED and host(at) in strangers)
            if at == WITH_TLS and pods and not each.broken and host(at) not in strangers:
                self._presents_the_newest(place.pairs.own[each.certificate].serial)

    def _statuses_are_as_asked(self, asked: Asked) -> None:
        api = self.place.api
        assert not (wrong := differences(asked, api.kept)), "\n".join(wrong)
        assert api.holder == IDENTITY, f"the Lease is held by {api.holder!r}"
        for at, kind in ((BALANCED, Resource.SERVICES), (GATED, Resource.GATEWAYS)):
            told = api.addresses(ObjectKey(kind, Key(NAMES[at], NAMES[at]))) if self.truth[at].there else ()
            if at in self._addresses:
                assert told == (self._addresses[at],), f"{NAMES[at]} is served at another address than {told}"
        written = api.writes
        self.place.run_for(LONG_S)
        assert api.writes == written, "the statuses of a calm cluster are written again"

    def _presents_the_newest(self, serial: int) -> None:
        wait_until(lambda: self._presented(WITH_TLS) == serial, "the newest certificate", limit_s=_PATIENCE_S)

    def _serves_just_its_pods(self, at: int, pods: int, *, thief: bool, has_thief: bool) -> None:
        wanted = {pod_address(at, pod) for pod in range(MOST_PODS) if pods >> pod & 1}
        if thief and has_thief:
            # It was given the name while the older Service was away for longer than that is kept.
            wanted = {"308" if at in THIEF_BY_INGRESS else thief_address(at)}
        if not wanted and thief:
            return
        found: set[str] = set()

        def all_answered() -> bool:
            answer = self._ask(at)
            found.update(() if _is_none(answer) else {answer})
            return found == wanted if wanted else not found & set(self._allowed(at))

        try:
            wait_until(all_answered, "", limit_s=_PATIENCE_S, pause_s=0)
        except AssertionError:
            raise AssertionError(f"{NAMES[at]} is served by {found} instead of {wanted}") from None

    # The promises

    def _ask(self, at: int, path: str = "/") -> str:
        if NAMES[at] == "tcp" and self.place.has_foreigner:
            return "somebody else"  # who listens, and never answers
        if at in POOLED:
            return self._ask_pool(at, path)
        port = self.place.ports.tcp if NAMES[at] == "tcp" else self.place.http
        return ask(port, host(at), address=self.place.front, path=path)

    def _ask_pool(self, at: int, path: str) -> str:
        ports, answer = self.place.ports, ""
        for address in (self._addresses[at],) if at in self._addresses else ports.pool:
            answer = ask(ports.balanced if at == BALANCED else ports.gated, host(at), address=address, path=path)
            if answer in self._allowed(at):
                self._addresses[at] = address
                break
        return answer

    def _presented(self, at: int) -> int:
        """Return the serial number of the certificate that a client gets, 0 for none."""
        return presented_to(self.place.https, host(at), address=self.place.front)

    def _allowed(self, at: int) -> frozenset[str]:
        return frozenset(pod_address(at, pod) for pod in range(MOST_PODS))

    def _keeps_its_promises(self) -> None:
        self._runs_what_was_checked()
        self._serves_nothing_refused()
        for at in POOLED:
            if not (self.truth[at].there and self.shown[at].there):
                self._addresses.pop(at, None)
        for at, each in enumerate(self.truth):
            if not (each.is_healthy and self.shown[at].is_healthy):
                self._served.discard(at)
                self._presents.discard(at)
                continue
            allowed = self._allowed(at)
            if at in self._served:
                self._is_served(at, allowed)
            elif self._ask(at) in allowed:
                self._served.add(at)
            if at in self._served and at < HTTP_SERVICES:
                self._presents_its_own(at)

    def _presents_its_own(self, at: int) -> None:
        own = {each.serial for each in self.place.pairs.own} if at == WITH_TLS else set()
        found: list[int] = []

        def is_presented() -> bool:
            found.append(self._presented(at))
            return found[-1] in own or at not in self._presents

        try:
            wait_until(is_presented, "", limit_s=_PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{NAMES[at]} had a certificate; now: {found[-1]}") from None
        assert self.place.pairs.thief.serial not in found, f"clients of {NAMES[at]} get the certificate of a thief"
        if found[-1] in own:
            self._presents.add(at)

    def _is_served(self, at: int, allowed: frozenset[str]) -> None:
        answers: list[str] = []

        def answered(path: str) -> bool:
            answers.append(self._ask(at, path))
            return answers[-1] in allowed

        try:
            for path in ("/", LOGIN) if at in THIEF_BY_PATH else ("/",):
                wait_until(partial(answered, path), "", limit_s=_PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{NAMES[at]} is healthy and was served; now: {answers[-1]}") from None
        assert thief_address(at) not in answers, f"{NAMES[at]} is served by a thief"

    def _runs_what_was_checked(self) -> None:
        running = None

        def runs() -> bool:
            nonlocal running
            running = self.place.haproxy.running()
            return running is not None and (self.place.checked / str(running.digest)).exists()

        try:
            wait_until(runs, "", limit_s=_PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"HAProxy runs what was not checked: {running}") from None

    def _serves_nothing_refused(self) -> None:
        conf = self.place.haproxy.conf
        for path in (conf, *(conf.parent / "files").rglob("*")):
            if path.is_file() and path.suffix != ".pem":  # base64 may hold any word
                text = path.read_text()
                assert not any(word in text for word in EVIL), f"{path.name} has what was refused:\n{text}"
        answers: list[str] = []

        def answered() -> bool:
            answers.append(ask(self.place.http, "evil.example.com", address=self.place.front))
            return not _is_none(answers[-1])

        wait_until(answered, "haproxy answers", limit_s=_PATIENCE_S)
        assert answers[-1] == "404", f"evil.example.com is served: {answers[-1]}"


def _is_none(answer: str) -> bool:
    """Return whether there was no answer: a connection that came in the moment of a reload may be cut."""
    return answer.startswith("failed")


def _differences(found: str, wanted: str) -> str:
    return "\n".join(difflib.unified_diff(found.splitlines(), wanted.splitlines(), "served", "wanted", lineterm=""))
