"""One test of fragments: its fixtures rendered, checked, planned and compared with what is expected."""

import io
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyconfd import wiring
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.certificates import with_stubs
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.model.context import Refusal, in_order
from pyconfd.model.plan import Plan
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.predecessors.targets.target import Target
from pyconfd.presets import registry
from pyconfd.settings import Settings
from pyconfd.sources.file import STDIN, read_snapshot
from pyconfd.testing.cases import Case, CaseStep, Kind
from pyconfd.testing.judge import WHOLE, CaseFailure, CaseOutcome, difference, judge, judge_failure, judge_plan
from pyconfd.testing.report import Result
from pyconfd.testing.shuffle import shuffled

SOME_DATE = "2000-01-01 00:00:00.000000"
"""What templates see as ``extra.curdate``: a test knows no time of day."""

_SEED = 20000101


def expected_files(step: CaseStep) -> Iterator[str]:
    """Return the names of the files that a step is compared with."""
    for each in step.expectations:
        if each.kind is Kind.EQUALS_FILE:
            yield each.texts[0]


def text_of(path: Path, place: str = "") -> str:
    """Return the text of a file; raises ConfigurationError, at ``place`` where that is given."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(Problem(place or str(path), f"{path} cannot be read: {why}")) from None


@dataclass(frozen=True, slots=True)
class _State:
    """What a Snapshot gave under the fragments."""

    rendering: Rendering
    texts: Mapping[str, str]
    refused: tuple[Refusal, ...]
    of_targets: tuple[tuple[Target, str], ...]


class _Bench:
    """The fragments and settings of a case, compiled; raises RejectedInput or TransientError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._renderer = wiring.renderer(settings, wiring.fragments(settings))
        self._options = wiring.preset_options(settings, self._renderer)
        self._targets = wiring.targets(settings)

    def state(self, snapshot: Snapshot, unreadable: tuple[Refusal, ...]) -> _State:
        """Render; raises RejectedInput."""
        context = registry.translate(snapshot, self._settings.presets.names, self._options)
        rendering = self._renderer.render(context, curdate=SOME_DATE).rendering
        of_targets = tuple((target, target.render(context, curdate=SOME_DATE)) for target in self._targets)
        served = wiring.serves_haproxy(self._settings)
        whole = rendering.text if served else "".join(text for _, text in of_targets)
        texts = {WHOLE: whole, **{piece.fragment: piece.text for piece in rendering.pieces}}
        folder = f"{files_dir_of(self._settings.haproxy)}/"
        maps = (file for file in rendering.files if file.kind is FileKind.MAP)
        texts |= {file.path.removeprefix(folder): file.content for file in maps}
        texts |= {target.settings.name: text for target, text in of_targets}
        refused = in_order(context.refused, unreadable)
        return _State(rendering, texts, refused, of_targets)

    def check(self, state: _State) -> None:
        """Validate it by the real programs; a certificate that this machine lacks has a stand-in."""
        settings = self._settings.haproxy
        if wiring.serves_haproxy(self._settings):
            check(with_stubs(state.rendering), settings=settings, unit=systemd.gather(settings.unit))
        for target, text in state.of_targets:
            target.check(text)

    def plan(self, former: _State, state: _State, can: tuple[str, ...]) -> Plan:
        """Return how a haproxy that runs ``former`` gets to ``state``."""
        runtime = bool(stats_sockets(former.rendering.text, self._settings.haproxy.runtime_socket))
        why = "" if runtime else "the configuration opens no runtime socket"
        abilities = Abilities(runtime=runtime, why=why, backends="backends" in can, cookies="cookies" in can)
        return diff.plan(state.rendering, former.rendering, None, abilities=abilities)


class Trial:
    """One case being run."""

    def __init__(self, path: Path, case: Case, settings: Settings, *, update: bool) -> None:
        self._path = path
        self._case = case
        self._settings = settings
        self._update = update
        self._failures: list[CaseFailure] = []
        self._texts: list[str] = []
        self._updated: list[str] = []

    def run(self) -> Result:
        """Run the steps one after the other.

        Raises:
            ConfigurationError: a fixture cannot be used.
            TransientError: a program that judges cannot be asked.
        """
        case = self._case
        rejected: tuple[Problem, ...] = ()
        inputs = [self._snapshot(step) for step in case.steps]
        try:
            bench = _Bench(self._settings)
            former: _State | None = None
            for step, (snapshot, unreadable) in zip(case.steps, inputs, strict=True):
                former = self._step(bench, step, snapshot, unreadable, former)
        except RejectedInput as error:
            rejected = error.problems
        if case.fails:
            failure = judge_failure(case.fails, rejected)
            self._failures += [failure] if failure else []
        elif rejected:
            lines = tuple(line for problem in rejected for line in str(problem).splitlines())
            self._failures.append(CaseFailure("is rejected", lines))
        return Result(str(self._path), case.name, tuple(self._failures), tuple(self._texts), tuple(self._updated))

    def _step(
        self, bench: _Bench, step: CaseStep, snapshot: Snapshot, unreadable: tuple[Refusal, ...], former: _State | None
    ) -> _State:
        state = bench.state(snapshot, unreadable)
        self._texts.append("\n".join(f"--- {name}\n{text}" if name else text for name, text in state.texts.items()))
        expected = {name: self._expected(name) for name in expected_files(step)}
        seen = CaseOutcome(state.texts, state.refused, expected)
        for expectation in step.expectations:
            failure = judge(expectation, seen)
            if failure and self._update and expectation.kind is Kind.EQUALS_FILE and expectation.within in seen.texts:
                self._write(expectation.texts[0], seen.texts[expectation.within])
            elif failure:
                self._failures.append(failure)
        if former is not None:
            failure = judge_plan(step, bench.plan(former, state, self._case.abilities))
            self._failures += [failure] if failure else []
        if self._case.deterministic:
            self._compare_shuffled(snapshot, unreadable, state)
        if self._case.valid:
            bench.check(state)
        return state

    def _compare_shuffled(self, snapshot: Snapshot, unreadable: tuple[Refusal, ...], state: _State) -> None:
        other = shuffled(snapshot, random.Random(_SEED).shuffle)  # noqa: S311 - no secret: the same order each time
        again = _Bench(self._settings).state(other, unreadable)
        lines = [
            line
            for name, text in state.texts.items()
            if name != WHOLE or len(state.texts) == 1
            for line in difference(text, again.texts.get(name, ""), name or "as given", "in another order")
        ]
        if lines:
            message = "the same objects in another order give another text; sort what is looped over"
            self._failures.append(CaseFailure(message, tuple(lines)))

    def _snapshot(self, step: CaseStep) -> tuple[Snapshot, tuple[Refusal, ...]]:
        place = f"{self._path}: {self._case.name}"
        files = [str(self._path.parent / name) for name in step.files]
        if not files and not step.objects:
            return Snapshot(), ()
        try:
            return read_snapshot([*files, *([STDIN] if step.objects else [])], io.StringIO(step.objects))
        except ConfigurationError as error:
            problems = (
                replace(each, place=f"{place}: {each.place.replace('the standard input', 'objects')}")
                for each in error.problems
            )
            raise ConfigurationError(*problems) from None

    def _expected(self, name: str) -> str:
        path = self._path.parent / name
        if self._update and not path.exists():
            return ""
        return text_of(path, f"{self._path}: {self._case.name}")

    def _write(self, name: str, text: str) -> None:
        path = self._path.parent / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        except OSError as error:
            raise TransientError(Problem(str(path), f"cannot be written: {error.strerror}")) from error
        self._updated.append(name)
