"""Keeps the compiled fragments current; a directory that vanishes does not take away what was read before."""

from collections.abc import Callable
from dataclasses import dataclass

from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.rendering import FragmentSet
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """Fragments ready to render, and what they mean for the presets; ``source`` are the fragments themselves."""

    renderer: Renderer
    options: PresetOptions
    source: FragmentSet


class LiveFragments:
    """Reads the template directory whenever asked and compiles it when its contents changed.

    ``newest`` is the newest that compiled (None until one did), ``applied`` the newest that was applied;
    ``problems`` say why the directory as it is now cannot be used (empty where it can). ``former`` returns the
    fragments of before a restart, if they are known: these were applied. ``served_before`` returns whether a stored
    generation was made of some fragments.
    """

    def __init__(
        self,
        read: Callable[[], FragmentSet],
        compile_: Callable[[FragmentSet], Renderer],
        options_for: Callable[[Renderer], PresetOptions],
        former: Callable[[], FragmentSet | None] = lambda: None,
        served_before: Callable[[FragmentSet], bool] = lambda _: False,
    ) -> None:
        self._read = read
        self._served_before = served_before
        self._former: Callable[[], FragmentSet | None] | None = former
        self._compile = compile_
        self._options_for = options_for
        self._seen: FragmentSet | None = None
        self._compile_problems: tuple[Problem, ...] = ()
        self._served = False
        self.newest: Compiled | None = None
        self.applied: Compiled | None = None
        self.problems: tuple[Problem, ...] = ()
        self.reading = False
        """True from the beginning of :meth:`refresh` until the caller has reported its result and resets it."""

    def refresh(self) -> bool:
        """Read the directory; return whether there is something new to render with."""
        self.reading = True
        recalled = self._recall()
        try:
            found = self._read()
        except PyconfdError as error:
            self.problems = error.problems
            return recalled
        if found != self._seen:
            self._seen = found
            try:
                self.newest = self._compiled(found)
            except PyconfdError as error:
                self.problems = self._compile_problems = error.problems
                return recalled
            self.problems = self._compile_problems = ()
            return True
        self.problems = self._compile_problems
        return recalled

    @property
    def serving(self) -> FragmentSet | None:
        """Return the applied fragments, None where none were applied yet or newer ones were not."""
        applied = self.applied
        return applied.source if self._served and applied is not None and applied is self.newest else None

    def was_applied(self, compiled: Compiled) -> bool:
        """Return whether these were applied once, now or before; True as well as long as none were applied yet.

        If fragments that were applied before fail, an object is at fault. A rollback, its end and an edit that is
        undone bring such fragments, and with them the objects that were left out.
        """
        return self.applied is None or compiled is self.applied or self._served_before(compiled.source)

    def mark_applied(self, compiled: Compiled) -> None:
        """Record that these were applied."""
        self.applied, self._served = compiled, True

    def _recall(self) -> bool:
        """Load the fragments of before a restart, which were applied, once."""
        former, self._former = self._former, None
        source = former() if former is not None else None
        if source is None:
            return False
        try:
            self.newest = self.applied = self._compiled(source)
        except PyconfdError:
            return False  # it is of another version of pyconfd
        self._seen = source
        return True

    def _compiled(self, source: FragmentSet) -> Compiled:
        renderer = self._compile(source)
        return Compiled(renderer, self._options_for(renderer), source)
