"""What Events say: of what is refused at once, and of what nothing answers for after a minute."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pyconfd.app.daemon import UNSERVED_S, Notices
from pyconfd.daemon.memory import Seen
from pyconfd.model.status import BackendDown, LiveStatus, OverrideStatus, SpentShare
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from tests.presets.ingress.objects import ingress, ingress_class, path, service, snapshot

if TYPE_CHECKING:
    from pyconfd.daemon.loop import Daemon

PRESETS = ("domains", "ingress")


class FakeDaemon:
    """What a daemon has seen, and its status at a time that the test sets."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        seen, options = snapshot(*objects), PresetOptions()
        context = registry.translate(seen, PRESETS, options)
        self.memory = SimpleNamespace(seen=Seen(seen, options, context, None, context.refused), complete=None)
        self.spent: SpentShare | None = None
        self.down: tuple[BackendDown, ...] = ()
        self.overrides: tuple[OverrideStatus, ...] = ()
        self.now = 1_000.0

    def status(self) -> Any:
        live = LiveStatus(down=self.down, overrides=self.overrides)
        return SimpleNamespace(now=self.now, live=live, spent_share=self.spent)


def said(notices: Notices) -> list[tuple[str, str, str]]:
    return [(str(each.ref), each.reason, each.uid) for each in notices.now()]


def test_what_is_refused_is_said_at_once_and_what_nothing_answers_for_after_a_minute() -> None:
    rules = {"a.example.com": [path("/"), path("/x", "none:80")]}
    daemon = FakeDaemon(ingress_class(), *service("web"), ingress(rules=rules))
    notices = Notices(cast("Daemon", daemon))
    refused = ("Ingress demo/web", "NoSuchService", "demo/web")
    daemon.down = (BackendDown("ing_demo_web_80", 0, since=1_000.0),)
    assert said(notices) == [refused]
    daemon.now += UNSERVED_S - 1
    assert said(notices) == [refused]
    daemon.now += 1
    assert said(notices) == [refused, ("Ingress demo/web", "NoReadyEndpoints", "demo/web")]
    daemon.down = ()
    assert said(notices) == [refused]


def test_pods_that_do_not_answer_are_said_unless_an_operator_took_them_out() -> None:
    made = ingress(rules={"a.example.com": [path("/")]})
    daemon = FakeDaemon(ingress_class(), *service("web", "10.0.0.1"), made)
    notices = Notices(cast("Daemon", daemon))
    daemon.down, daemon.now = (BackendDown("ing_demo_web_80", 1, since=1.0),), 100.0
    assert said(notices) == [("Ingress demo/web", "EndpointsUnreachable", "demo/web")]
    daemon.overrides = (OverrideStatus("ing_demo_web_80/web-1", "maint", 5.0),)
    assert said(notices) == []


def test_who_is_behind_other_backends_that_are_down_is_found_within_seconds() -> None:
    hosts = [ingress(each, {f"{each}.example.com": [path("/", f"{each}:80")]}) for each in ("one", "two")]
    daemon = FakeDaemon(ingress_class(), *service("one"), *service("two"), *hosts)
    notices = Notices(cast("Daemon", daemon))
    one, two = (BackendDown(f"ing_demo_{each}_80", 0, since=1.0) for each in ("one", "two"))
    daemon.down = (one,)
    assert [each.ref.name for each in notices.now()] == ["one"]
    daemon.down = one, two
    daemon.now += 1
    assert [each.ref.name for each in notices.now()] == ["one"]
    daemon.now += 5
    assert [each.ref.name for each in notices.now()] == ["one", "two"]
    daemon.down, daemon.now = (one,), daemon.now - 600
    assert [each.ref.name for each in notices.now()] == ["one"], "a clock that is set back delays nothing"
    daemon.down = ()
    assert notices.now() == []
    daemon.down = (two,)
    assert [each.ref.name for each in notices.now()] == ["two"]


def test_what_waits_for_its_share_of_reloads_is_said_of_its_new_objects() -> None:
    former = [ingress_class(), *service("web", "10.0.0.1"), ingress(rules={"a.example.com": [path("/")]})]
    new = [ingress("new", {"b.example.com": [path("/")]}), ingress("other", namespace="shop")]
    daemon = FakeDaemon(*former, *new)
    daemon.memory.complete = snapshot(*former)
    notices = Notices(cast("Daemon", daemon))
    daemon.spent = SpentShare(("demo",), 1_000.0)
    [found] = notices.now()
    assert (str(found.ref), found.reason, found.uid) == ("Ingress demo/new", "ReloadShareSpent", "demo/new")
    assert found.is_local, "another balancer may have the turn to write, and another share left"
    daemon.spent = None
    assert said(notices) == []


def test_nothing_is_said_before_anything_was_read() -> None:
    daemon = FakeDaemon()
    daemon.memory.seen = None
    assert Notices(cast("Daemon", daemon)).now() == []
