"""Templates that the cluster supplies: whether there is one, and what renders it."""

import atexit
from typing import TYPE_CHECKING

import structlog

from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.model.context import ClusterTemplate, PresetName
from pyconfd.model.rendering import FileKind
from pyconfd.predecessors import allowed
from pyconfd.predecessors.sandbox.background import BackgroundTemplates
from pyconfd.predecessors.sandbox.renderer import Limits, TemplateProcess
from pyconfd.settings import Settings

if TYPE_CHECKING:
    from pyconfd.errors import Problem

log = structlog.get_logger(__name__)


def is_allowed(settings: Settings) -> bool:
    """Return whether the whole configuration may come from the cluster."""
    return settings.cluster_templates.allow_configuration_from_cluster and _is_named(settings)


def is_switched_off(settings: Settings) -> bool:
    """Return whether there is such a template, which the settings do not allow."""
    return _is_named(settings) and not is_allowed(settings)


def _is_named(settings: Settings) -> bool:
    use = settings.presets.names
    return PresetName.CONFIGMAP in use or (PresetName.HOSTS in use and bool(settings.hosts.config))


_MOST_REMEMBERED = 100
"""Notes: a rejected template and the one before it are rendered in turn."""


class ClusterTemplates:
    """Renders templates from the cluster in a process of their own, and accepts of their text what is allowed."""

    def __init__(self, limits: Limits, boundaries: allowed.Boundaries) -> None:
        self._process = TemplateProcess(limits)
        self._boundaries = boundaries
        self._logged: set[Problem] = set()
        atexit.register(self.close)

    def render(self, template: ClusterTemplate) -> str:
        """Return the text; raises RejectedInput. What was changed in it is logged once."""
        judged = allowed.judge(template.name, self._process.render(template), self._boundaries)
        for note in judged.notes:
            if note not in self._logged:
                log.warning("cluster_template.adjusted", place=note.place, note=note.message)
        self._logged = {*judged.notes, *(self._logged if len(self._logged) < _MOST_REMEMBERED else ())}
        return judged.text

    def interrupt(self) -> None:
        """End the rendering that runs in another thread, if any."""
        self._process.interrupt()

    def close(self) -> None:
        """End the process."""
        self._process.close()
        atexit.unregister(self.close)


_CLUSTER_TEMPLATES: dict[tuple[Limits, allowed.Boundaries], ClusterTemplates] = {}
"""One for each set of limits, so that new fragments do not start a new process."""


def shared(settings: Settings) -> ClusterTemplates:
    """Return what renders templates from the cluster under these settings."""
    own = settings.cluster_templates
    files_dir = files_dir_of(settings.haproxy)
    boundaries = allowed.Boundaries(
        certificates=(f"{files_dir}/{FileKind.CERTIFICATE.value}",),
        contents=(f"{files_dir}/{FileKind.MAP.value}", *own.directories),
        allow=frozenset(own.allow),
    )
    key = Limits(own.timeout_s, own.memory_bytes, own.output_bytes), boundaries
    if key not in _CLUSTER_TEMPLATES:
        _CLUSTER_TEMPLATES[key] = ClusterTemplates(*key)
    return _CLUSTER_TEMPLATES[key]


def in_background(settings: Settings) -> BackgroundTemplates:
    """Return what renders templates from the cluster for a loop, which never waits for them."""
    templates = shared(settings)
    return BackgroundTemplates(templates.render, templates.interrupt)
