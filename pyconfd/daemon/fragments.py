"""Keeps the compiled fragments current; a directory that vanishes does not take away what was read before."""

from collections.abc import Callable

from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.rendering import FragmentSet
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer


class LiveFragments:
    """Reads the template directory whenever asked and compiles it when its contents changed.

    ``renderer`` is the newest that compiled (None until one did); ``problems`` say why the directory as it is now
    cannot be used (empty where it can).
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
        self.renderer: Renderer | None = None
        self.options = PresetOptions()
        self.problems: tuple[Problem, ...] = ()

    def refresh(self) -> bool:
        """Read the directory; give True if there is a new renderer."""
        try:
            found = self._read()
            if found == self._seen and not self._unread:
                return False
            self._seen = found
            renderer = self._compile(found)
        except PyconfdError as error:
            self.problems = error.problems
            return False
        self.renderer = renderer
        self.options = self._options_for(renderer)
        self.problems = ()
        return True

    @property
    def _unread(self) -> bool:
        """True after a failure to read: the same contents coming back must clear the problem."""
        return bool(self.problems)
