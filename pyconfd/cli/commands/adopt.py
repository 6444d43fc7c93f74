"""``pyconfd adopt``: let pyconfd replace a configuration that it did not write, or keep that as a fragment."""

from pathlib import Path

import click

from pyconfd import wiring
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.config import binds
from pyconfd.haproxy.config.text import binds as binds_of
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import HostFacts
from pyconfd.settings import Settings
from pyconfd.system.files import AS_ROOT, replace_shared

COPY = "00-adopted.conf"


@command(
    examples={"pyconfd adopt --copy": "keep the running configuration", "pyconfd adopt": "let it go"},
    exits={
        Exit.FAILED: "with the copy, HAProxy would not load the fragments; nothing was changed",
        Exit.TEMPORARY: "the copy or the decision cannot be written",
    },
)
@click.option("--copy", is_flag=True, help="Keep the running configuration: as the fragment 00-adopted.conf.")
def adopt(context: CommandContext, *, copy: bool) -> int:
    """Replace a configuration that pyconfd did not write.

    Where HAProxy runs with a configuration that pyconfd did not write, the first start of pyconfd changes nothing, and
    `pyconfd plan` and `pyconfd status` name the frontends, binds and backends that would disappear. This command says
    that pyconfd may go on.

    With --copy they stay: the former configuration becomes the fragment 00-adopted.conf, yours to edit.
    """
    settings = context.settings()
    unit = systemd.gather(settings.haproxy.unit)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit)
    found = None if balancer.last_good() else adoption.foreign(settings.haproxy, unit)
    if found is None:
        print_text("There is nothing to adopt: pyconfd wrote what HAProxy serves, or it serves nothing.")
        return Exit.OK
    if copy:
        _copy(settings, balancer, found)
    adoption.adopt(settings.state_dir)
    kept = f" It is the fragment {settings.templates.dir}/{COPY} now." if copy else ""
    print_text(f"pyconfd may replace {found.path} now.{kept} pyconfd status shows whether it did.")
    return Exit.OK


def _copy(settings: Settings, balancer: Balancer, found: adoption.UnmanagedConfiguration) -> None:
    path = Path(settings.templates.dir, COPY)
    if found.text is None:
        raise RejectedInput(Problem(found.path, "cannot be read by this user", AS_ROOT))
    if path.exists():
        raise RejectedInput(Problem(str(path), "is there already", "move it away, or run pyconfd adopt without --copy"))
    text = f"# What HAProxy served before pyconfd, from {found.path}.\n{found.text}"
    _try(settings, balancer, Fragment(COPY, text))
    replace_shared(str(path), text.encode(), forbidden=AS_ROOT)


def _try(settings: Settings, balancer: Balancer, copy: Fragment) -> None:
    """Check the fragments together with the copy, for a cluster without objects; raises RejectedInput."""
    fragments = wiring.fragments(settings)
    together = FragmentSet((copy, *fragments.fragments), fragments.includable)
    rendering = wiring.render_empty_cluster(settings, wiring.renderer(settings, together))
    wanted = binds_of(rendering.text)
    # HAProxy's check takes two proxies on one address; what is bound by the running haproxy is no problem.
    if faults := binds.judge(wanted, wanted, HostFacts(), place_of=rendering.place_of):
        raise RejectedInput(*(fault.problem for fault in faults))
    balancer.check(rendering)
