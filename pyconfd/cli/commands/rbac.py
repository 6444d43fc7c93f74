"""``pyconfd rbac``: the permissions that these settings need."""

from pyconfd import wiring
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_text
from pyconfd.settings import Settings
from pyconfd.sources.kubernetes.resources import manifest


@command(
    examples={
        "pyconfd rbac | kubectl apply -f -": "",
        "pyconfd rbac --preset kubefigurator": "what this preset reads",
        "pyconfd rbac --kubernetes-secret-namespaces web": "with TLS Secrets of one namespace",
    },
)
def rbac(context: CommandContext) -> int:
    """Print the permissions that pyconfd needs.

    A manifest with the ServiceAccount and the least permissions that these settings need.
    """
    # Permissions do not depend on which pods the preset `hosts` takes, so that need not be set yet.
    resolved = context.resolve(**{"hosts.master": "any"})
    print_notes(resolved.notes)
    print_text(permissions(resolved.settings), newline=False)
    return Exit.OK


def permissions(settings: Settings) -> str:
    """Return the manifest."""
    return manifest(wiring.rights(settings))
