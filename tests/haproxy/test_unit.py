from pathlib import Path

from pyconfd.haproxy.process.unit import UNLIMITED, UnitFacts, environment_file, gather, parse, problems
from pyconfd.settings import HaproxySettings

DEBIAN = """LoadState=loaded
User=
Group=
Environment=CONFIG=/etc/haproxy/haproxy.cfg PIDFILE=/run/haproxy.pid "EXTRAOPTS=-S /run/haproxy-master.sock"
EnvironmentFiles=/etc/default/haproxy (ignore_errors=yes)
EnvironmentFiles=/etc/sysconfig/haproxy (ignore_errors=yes)
ExecStart={ path=/usr/sbin/haproxy ; argv[]=/usr/sbin/haproxy -Ws -f $CONFIG -p $PIDFILE $EXTRAOPTS ; ignore_errors=no }
AmbientCapabilities=
"""


def nothing(path: str) -> str:
    return ""


def test_the_unit_of_debian() -> None:
    facts = parse("haproxy.service", DEBIAN, nothing)
    assert facts.found
    assert facts.user == ""
    assert facts.low_ports
    assert facts.configurations == ("/etc/haproxy/haproxy.cfg",)
    assert facts.master_worker_flag == "-Ws"
    assert facts.master_socket == "/run/haproxy-master.sock"
    assert facts.pid_file == "/run/haproxy.pid"
    assert facts.environment["CONFIG"] == "/etc/haproxy/haproxy.cfg"


def test_an_environment_file_wins_and_is_read_as_systemd_does() -> None:
    files = {
        "/etc/default/haproxy": '# c\nCONFIG="/etc/haproxy/generated/haproxy.cfg"\n'
        'EXTRAOPTS="-S /run/m.sock,mode,660,group,pyconfd -f /etc/more.cfg"\nNAME=a\\\n b\n'
    }
    facts = parse("haproxy.service", DEBIAN, lambda path: files.get(path, ""))
    assert facts.configurations == ("/etc/haproxy/generated/haproxy.cfg", "/etc/more.cfg")
    assert facts.master_socket == "/run/m.sock"
    assert environment_file("; c\nA='x y'\nnonsense\nB=\n") == {"A": "x y", "B": ""}


def test_an_unprivileged_unit() -> None:
    shown = DEBIAN.replace("User=", "User=haproxy").replace("Group=", "Group=proxies")
    facts = parse("haproxy.service", shown, nothing)
    assert (facts.user, facts.group, facts.low_ports) == ("haproxy", "proxies", False)
    with_capability = shown.replace("AmbientCapabilities=", "AmbientCapabilities=cap_net_bind_service")
    assert parse("haproxy.service", with_capability, nothing).low_ports


def test_how_many_files_a_unit_may_open() -> None:
    shown = f"{DEBIAN}LimitNOFILE=524288\nCapabilityBoundingSet=cap_chown cap_sys_resource\n"
    facts = parse("haproxy.service", shown, nothing)
    assert (facts.descriptors, facts.raises_limits) == (524_288, True)
    unprivileged = parse("haproxy.service", shown.replace("User=", "User=haproxy"), nothing)
    assert not unprivileged.raises_limits, "what is in the bounding set is not held"
    assert parse("haproxy.service", shown.replace("524288", "infinity"), nothing).descriptors == UNLIMITED
    assert parse("haproxy.service", DEBIAN, nothing).descriptors == 0


def test_a_unit_that_is_not_there() -> None:
    assert parse("x.service", DEBIAN.replace("=loaded", "=not-found"), nothing) == UnitFacts("x.service")
    assert gather("") == UnitFacts("")


def test_a_unit_that_loads_another_file_is_told_with_the_remedy(tmp_path: Path) -> None:
    facts = parse("haproxy.service", DEBIAN, nothing)
    (problem,) = problems(HaproxySettings(conf="/srv/haproxy.cfg"), facts)
    assert "loads /etc/haproxy/haproxy.cfg but pyconfd writes /srv/haproxy.cfg" in problem.message
    assert "put CONFIG=/srv/haproxy.cfg in /etc/default/haproxy" in problem.remedy
    assert problems(HaproxySettings(conf="/etc/haproxy/haproxy.cfg"), facts) == ()
    assert problems(HaproxySettings(conf="/srv/haproxy.cfg"), UnitFacts()) == ()

    whole_directory = parse("haproxy.service", DEBIAN.replace("/etc/haproxy/haproxy.cfg", str(tmp_path)), nothing)
    assert problems(HaproxySettings(conf=str(tmp_path / "50-pyconfd.cfg")), whole_directory) == ()
