"""Which hosts lead to which backend of haproxy.cfg. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from pyconfd.model.context import Context, PresetName
from pyconfd.presets import registry


def hosts_of_backends(context: Context) -> Mapping[str, Collection[str]]:
    """Return the hosts by the name that the shipped fragments give the backend; addresses of the pool are none."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for claim in registry.claims_of(context):
        if claim.preset == PresetName.LOADBALANCER:
            continue
        prefix = "be-" if claim.preset == PresetName.DOMAINS else ""
        for backend in claim.backends:
            found[prefix + backend.section] |= backend.hosts
    return found
