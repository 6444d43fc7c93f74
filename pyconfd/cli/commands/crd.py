"""``pyconfd crd``: the CustomResourceDefinition of RoutePolicies."""

import yaml

from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.presets.policies.crd import definition


@command(examples={"pyconfd crd | kubectl apply -f -": ""})
def crd(context: CommandContext) -> int:
    """Print the CustomResourceDefinition of RoutePolicies.

    It has a field for each word of policies that this version knows.
    """
    del context
    print_text(yaml.safe_dump(definition(), sort_keys=False), newline=False)
    return Exit.OK
