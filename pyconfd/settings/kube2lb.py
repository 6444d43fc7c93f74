"""What kube2lb's flags said: the settings of the preset of that name, and one balancer other than haproxy."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.presets.kube2lb_names import DEFAULT_SERVER_NAME
from pyconfd.settings.kinds import Choice, Command, Listing, PathText, Seconds, port_range
from pyconfd.settings.setting import Setting
from pyconfd.settings.targets import DEFAULT_TIMEOUT_S, Address, Domain, NameTemplates, Notify

_FILE = PathText()
_WAIT = Seconds()


@dataclass(frozen=True, slots=True)
class Kube2lbSettings:
    """``[kube2lb]``: what the flags of that system said, for the preset of this name."""

    domain: Annotated[
        str, Setting("domain for templates and server names", Domain(), also=("--domain",), empty="none")
    ] = "local"
    default_lb_ip: Annotated[
        str,
        Setting("address to listen on for services that ask for none", Address(), also=("--default-lb-ip",)),
    ] = "0.0.0.0"  # noqa: S104 - the predecessor's default
    default_port_mode: Annotated[
        str,
        Setting("mode of ports without an annotation", Choice(("http", "tcp")), also=("--default-port-mode",)),
    ] = "http"
    server_name_templates: Annotated[
        tuple[str, ...],
        Setting(
            "server names of each service, with {{ .Service.Name }}, {{ .Service.Namespace }}, {{ .Domain }} and more",
            NameTemplates(),
            also=("--server-name-templates",),
            empty="none",
        ),
    ] = (DEFAULT_SERVER_NAME,)
    listen_ports: Annotated[
        tuple[str, ...],
        Setting(
            "ports that Services may have bound; by default as kube2lb, but not where the machine itself is reached",
            Listing(port_range, metavar="FIRST-LAST,..."),
        ),
    ] = ("1-21", "23-32767")


@dataclass(frozen=True, slots=True)
class SingleTargetSettings:
    """``[target]``: one balancer other than haproxy, as kube2lb's flags name it."""

    template: Annotated[
        str,
        Setting("template of the configuration of another load balancer", _FILE, also=("--template",), empty="none"),
    ] = ""
    output: Annotated[str, Setting("file to generate from it", _FILE, empty="none")] = ""
    check: Annotated[
        tuple[str, ...],
        Setting("command that checks it; the file's path is appended, no shell", Command(), empty="none"),
    ] = ()
    notify: Annotated[
        str,
        Setting(
            "how its balancer is told: command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:",
            Notify(),
            also=("--notify",),
            empty="none",
        ),
    ] = ""
    timeout_s: Annotated[
        float, Setting("longest time of its check, and of its notifier", _WAIT, also=("--update-timeout",))
    ] = DEFAULT_TIMEOUT_S
