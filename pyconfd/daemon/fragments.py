"""Keeps the compiled fragments current; a directory that vanishes does not take away what was read before."""

from collections.abc import Callable
from dataclasses import dataclass

from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.rendering import FragmentSet
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """Fragments ready to render, and what they mean for the presets."""

    renderer: Renderer
    options: PresetOptions


class LiveFragments:
    """Reads the template directory whenever asked and compiles it when its contents changed.

    ``newest`` is the newest that compiled (None until one did), ``proven`` the newest that came to serve;
    ``problems`` say why the directory as it is now cannot be used (empty where it can).
    """

    def __init__(
        self,
        read: Callable[[], FragmentSet],
        compile_: Callable[[FragmentSet], Renderer],
        options_for: Callable[[Renderer], PresetOptions],
    ) -> None:
        self._read = read
        self._compile = compile_
        self._options_for = options_for
        self._seen: FragmentSet | None = None
        self._compile_problems: tuple[Problem, ...] = ()
        self.newest: Compiled | None = None
        self.proven: Compiled | None = None
        self.problems: tuple[Problem, ...] = ()

    def refresh(self) -> bool:
        """Read the directory; give True if there is something new to render with."""
        try:
            found = self._read()
        except PyconfdError as error:
            self.problems = error.problems
            return False
        if found != self._seen:
            self._seen = found
            try:
                renderer = self._compile(found)
            except PyconfdError as error:
                self.problems = self._compile_problems = error.problems
                return False
            self.newest = Compiled(renderer, self._options_for(renderer))
            self.problems = self._compile_problems = ()
            return True
        self.problems = self._compile_problems
        return False
