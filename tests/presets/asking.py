"""What a preset says of its objects beside the template variables: for explanations, and for removal protection."""

from typing import Any

from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions


def claims(seen: Snapshot, preset: str, options: PresetOptions | None = None) -> dict[str, Any]:
    """Return each claim by its object (and item): what asks, the names, the backends by section, and the endpoints."""
    context = registry.translate(seen, (preset,), options or PresetOptions())
    return {
        f"{each.ref.kind} {each.ref.namespace}/{each.ref.name} {each.item}".strip(): (
            each.because,
            each.names,
            {
                backend.section: (
                    backend.name, backend.key, [end.address for end in backend.endpoints], sorted(backend.hosts),
                    bool(backend.unreachable),
                )
                for backend in each.backends
            },
            [f"{end.address}:{end.port} {end.state}" for end in each.endpoints],
        )
        for each in registry.claims_of(context)
        if each.preset == preset
    }  # fmt: skip


def counted(seen: Snapshot, preset: str, options: PresetOptions | None = None) -> dict[Any, list[str]]:
    """Return the addresses of what the preset serves, by its key, as removal protection counts them."""
    (claimed,) = registry.translate(seen, (preset,), options or PresetOptions()).claimed
    return {key: list(claimed.addresses(each)) for key, each in sorted(claimed.by_name.items())}
