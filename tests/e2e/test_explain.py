"""What ``pyconfd explain`` says of a whole load balancer at work, for each stage and each kind of query."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import edit, serving
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.rbac import Rules

pytestmark = pytest.mark.haproxy


def explained(appliance: Appliance, *query: str, code: int = 0) -> str:
    found = appliance.command("explain", *query)
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout


def answer(appliance: Appliance, *query: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explained(appliance, *query, "--json", code=code))
    return found


def asked(appliance: Appliance, *query: str) -> dict[str, Any]:
    """Return the answer whatever it is: the daemon may not have read yet what was just written."""
    found: dict[str, Any] = json.loads(appliance.command("explain", *query, "--json").stdout)
    return found


def reason_in(claim: dict[str, Any]) -> str:
    """Return the reason of the first condition that is not true, else that of the last one."""
    conditions = claim["conditions"]
    return str(next((each for each in conditions if each["status"] != "True"), conditions[-1])["reason"])


def reason(appliance: Appliance, *query: str) -> str:
    """Return that of the first claim that is meant; "" where none is known by that name."""
    claims = asked(appliance, *query)["claims"]
    return reason_in(claims[0]) if claims else ""


@pytest.fixture
def world(appliance: Appliance) -> Appliance:
    appliance.own_fragments()
    serving(appliance, pods=2)
    return appliance


def test_what_is_served_is_found_by_each_kind_of_query(world: Appliance) -> None:
    for query in (
        "shop",
        "demo/shop",
        "service demo/shop",
        "shop.example.com",
        "domain shop.example.com",
        "SHOP.example.com",
    ):
        text = explained(world, *query.split())
        assert "Service demo/shop" in text, query
        assert "served by 2 servers" in text, text
        assert "annotations domain shop.example.com and proto http (preset domains)" in text
        assert text.count("up for") == 2, text
        assert "02-http.tmpl rendered line" in text
    servers = answer(world, "shop")["claims"][0]["servers"]
    assert {server["state"] for server in servers} == {"up"}
    assert {server["pod"] for server in servers} == {"shop-1", "shop-2"}
    lines = world.haproxy.conf.read_text().splitlines()
    for server in servers:
        assert server["name"] in lines[server["line"] - 1]

    pod = world.members("shop")[0]
    (server,) = answer(world, "shop-1")["servers"]
    for query in (
        f"{NAMESPACE}/shop-1",
        "pod shop-1",
        pod.address,
        f"{pod.address}:{world.pods.port}",
        server["name"],
        f"be-shop.example.com/{server['name']}",
    ):
        assert answer(world, *query.split())["servers"] == [
            server | {"state_s": pytest.approx(server["state_s"], abs=60)}
        ], query
    assert len(answer(world, "be-shop.example.com")["servers"]) == 2
    text = explained(world, "shop-1")
    assert "Service demo/shop" in text
    assert "pod demo/shop-1" in text

    lines = world.haproxy.conf.read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if line.strip().startswith("server shop-1"))
    template = (world.folder / "templates" / "02-http.tmpl").read_text().splitlines()
    for query in (f"haproxy.cfg:{number}", f"line {number}", f"{world.haproxy.conf}:{number}"):
        answered = answer(world, *query.split())
        found = answered["line"]
        assert found["text"] == lines[number - 1].strip()
        assert found["fragment"] == "02-http.tmpl"
        assert found["section"] == "backend be-shop.example.com"
        assert [template[at - 1].strip() for at, _ in found["template_lines"]] == [
            text for _, text in found["template_lines"]
        ]
        assert any("server {{ server.name }}" in text for _, text in found["template_lines"])
        assert [each["object"] for each in answered["claims"]] == ["Service demo/shop"]
    assert "02-http.tmpl:" in explained(world, "line", str(number))
    assert "lines of the running configuration" in explained(world, "line", "99999", code=1)

    world.serve("any", {"domain": "*.any.example.com", "proto": "http"})
    world.until(lambda: reason(world, "any") == "Programmed", "it is served")
    assert [each["object"] for each in answer(world, "a.b.any.example.com")["claims"]] == ["Service demo/any"]

    world.cluster.add_service("prod", "shop", ports=[PortSpec(name="web", port=80, target=8080)], annotations={})
    world.until(lambda: asked(world, "shop")["candidates"], "there are two")
    found = answer(world, "shop", code=1)["candidates"]
    assert found == ["service demo/shop", "service prod/shop"]
    for candidate in found:
        assert reason(world, *candidate.split()) in {"Programmed", "NotClaimed"}
    text = explained(world, "shpo", code=1)
    assert "Nothing is called 'shpo'" in text
    assert "shop" in text
    assert "Service objects" in text


def test_a_request_is_explained_by_the_daemon_as_it_is_answered(world: Appliance) -> None:
    url = f"http://shop.example.com:{world.http}/cart?x=1"
    found = answer(world, url)
    assert found["request"]["backends"] == [["be-shop.example.com", 100.0]]
    assert found["request"]["uncovered"] == []
    assert {each["state"] for each in found["servers"]} == {"up"}
    assert world.ask("shop").rpartition("/")[2].split()[0] in {each["pod"] for each in found["servers"]}
    assert "chosen: path prefix /" in explained(world, url, "-X", "POST", "-H", "Cookie: secret-of-client")
    assert "secret-of-client" not in explained(world, url, "-H", "Cookie: secret-of-client", "--json")
    nobody = answer(world, f"http://nobody.example.com:{world.http}/")
    assert nobody["request"]["status"] == 404
    # The page is for anybody on this machine: what is no request, or too long, is an answer and no fault of the daemon.
    for query in ("url=ftp://a", f"url=http://a/{'a' * 9_000}", "url=http://a/&header=no"):
        code, body = world.get(f"/explain?{query}")
        assert code == 200
        assert json.loads(body)["looked_in"]


def ages(appliance: Appliance) -> dict[str, float]:
    """Return since when each object is refused."""
    return {each["object"]: each["conditions"][0]["since"] for each in answer(appliance, "--all-refused")["claims"]}


def test_what_is_not_served_says_why_since_when_and_what_to_do(world: Appliance) -> None:
    world.serve("younger", {"domain": "shop.example.com", "proto": "http"})
    world.serve("odd", {"domain": "odd.example.com", "proto": "sm tp"})
    world.until(lambda: len(world.status().get("refused", ())) == 2, "both are refused")
    since = ages(world)
    assert set(since) == {"Service demo/younger", "Service demo/odd"}
    assert all(since.values())
    text = explained(world, "younger")
    assert "NameTaken" in text
    assert "Service demo/shop has this name already" in text
    assert "to do" in text
    assert reason(world, "demo/odd") == "InvalidValue"
    # Who has the name comes first, then who wants it.
    claims = answer(world, "shop.example.com")["claims"]
    assert [(each["object"], reason_in(each)) for each in claims] == [
        ("Service demo/shop", "Programmed"),
        ("Service demo/younger", "NameTaken"),
    ]
    # What happens to others leaves its age.
    world.serve("other")
    world.until(lambda: world.ask("other").startswith("other-"), "something else happens")
    assert ages(world) == since
    listed = explained(world, "--all-refused")
    assert "Service demo/younger" in listed
    assert "Service demo/odd" in listed

    world.serve("idle", pods=0)
    world.serve("plain", {"pyconfd.io/domian": "plain.example.com"})
    world.serve("mute")
    with (world.folder / "templates" / "02-http.tmpl").open() as file:
        text = file.read().replace(
            "if items.proto == 'http' %}", "if items.proto == 'http' and items.name != 'mute' %}"
        )
    edit(world.folder / "templates" / "02-http.tmpl", text)
    world.serve("sick")
    world.until(lambda: world.ask("sick").startswith("sick-"), "all is applied")
    (sick,) = world.members("sick")
    world.cluster.set_endpoints(
        NAMESPACE, "sick", [EndpointSpec(sick.address, pod=sick.pod, node=sick.node, ready=False)]
    )
    world.until(lambda: reason(world, "sick") == "NoReadyEndpoints", "its pod is not ready")
    assert "its only endpoint is not ready" in explained(world, "sick")
    assert "sick-1" in explained(world, "sick")
    assert "it is not ready" in explained(world, "pod", "sick-1")
    assert reason(world, "idle") in {"NoReadyEndpoints", "Incomplete"}
    world.until(lambda: reason(world, "mute") == "NoServer", "the template leaves it out")
    assert reason(world, "plain") == "NotClaimed"
    assert "did you mean pyconfd.io/domain" in explained(world, "plain")


def test_servers_that_are_down_or_taken_out_by_hand(world: Appliance) -> None:
    world.serve("deaf")
    world.until(lambda: world.ask("deaf").startswith("deaf-"), "it is served")
    (member,) = world.members("deaf")
    world.pods.stop(member.pod)
    world.until(lambda: answer(world, "deaf")["claims"][0]["servers"][0]["state"] == "down", "its check fails")
    assert "none of them up: L4CON Connection refused" in explained(world, "deaf")

    assert world.run("server", "drain", "--config", str(world.config), "shop-1").returncode == 0
    world.until(lambda: "1 more taken out by hand" in explained(world, "shop"), "one of two drains")
    assert world.run("server", "maint", "--config", str(world.config), "shop-2").returncode == 0
    world.until(lambda: "all of them taken out by hand" in explained(world, "shop"), "so do both")
    text = explained(world, "shop")
    assert "to do         pyconfd server ready be-shop.example.com/shop-1" in text


def test_a_change_that_is_held_or_cannot_be_applied(world: Appliance) -> None:
    templates = world.folder / "templates"
    (templates / "99-broken.conf").write_text("frontend x\n    nonsense\n")
    world.serve("fresh")
    world.until(lambda: world.phase == "rejected", "the fragment is refused")
    text = explained(world, "shop")
    assert "pyconfd is rejected" in text
    assert "keeps running" in text
    assert "nonsense" in text
    assert "served by" in text
    (templates / "99-broken.conf").unlink()
    world.until(world.settled, "it is mended")
    for name in ("shop", "fresh"):
        for member in list(world.members(name)):
            world.remove(name, member.pod)
    world.until(lambda: world.phase == "held", "the loss is held")
    hold_id = world.status()["hold_id"]
    assert hold_id in explained(world, "shop")
    assert answer(world, "shop")["instance"]["hold_id"] == hold_id


def test_what_comes_while_applying_is_paused(world: Appliance) -> None:
    assert world.command("pause", "--reason", "moving racks").returncode == 0
    world.until(lambda: world.status()["live"]["paused"], "it is paused")
    world.serve("fresh")
    world.serve("odd", {"domain": "odd.example.com", "proto": "sm tp"})
    world.until(lambda: world.command("explain", "odd").returncode == 0, "they were read")
    assert reason(world, "fresh") == "Paused"
    assert reason(world, "odd") == "InvalidValue"
    assert reason(world, "shop") == "Programmed"
    assert "pyconfd resume" in explained(world, "fresh")
    assert world.command("resume").returncode == 0
    world.until(lambda: world.ask("fresh") == "fresh-1", "it is applied")
    world.until(world.settled, "it is verified")
    assert reason(world, "fresh") == "Programmed"


def test_without_a_daemon_the_cluster_is_read(world: Appliance, tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.yaml"
    assert world.command("record", str(recorded)).returncode == 0
    assert world.stop() == 0
    text = explained(world, "shop")
    assert "no daemon answers" in text
    assert "served by 2 servers" in text
    assert "up" in text
    for server in world.servers:
        server.refuse()
    text = explained(world, "shop", "--snapshot", str(recorded))
    assert "read from files" in text
    assert "served by 2 servers" in text
    away = world.command("explain", "shop")
    assert away.returncode == 75
    assert "status.listen" in away.stderr or "no answer" in away.stderr


def told(appliance: Appliance) -> list[tuple[str, str]]:
    return sorted((each["involvedObject"]["name"], each["reason"]) for each in appliance.cluster.objects("events"))


def test_events_on_the_objects_themselves_where_these_are_on(appliance: Appliance) -> None:
    appliance.values["events"] = {"enabled": True}
    appliance.servers[0].rules = Rules(
        appliance.run("rbac", "--events-enabled=false").stdout
    )  # without the right to create any
    appliance.serve("odd", {"domain": "odd.example.com", "proto": "sm tp"})
    serving(appliance)
    appliance.until(lambda: appliance.status().get("object_events", {}).get("failures_total"), "it is denied")
    appliance.until(lambda: any("cannot create" in each for each in appliance.status()["problems"]), "that is shown")
    assert appliance.ask("shop").startswith("shop-"), "nobody waits for it"
    denied = appliance.command("preflight")
    assert denied.returncode == 0
    assert "may not create events" in denied.stdout
    assert told(appliance) == []
    appliance.stop()  # what was denied is tried again after a minute, or by who restarts
    appliance.servers[0].rules = Rules(appliance.command("rbac").stdout)
    assert "events: can be created" in appliance.command("preflight").stdout
    appliance.spawn()
    appliance.until(lambda: told(appliance) == [("odd", "InvalidValue")], "it is told")
    (event,) = appliance.cluster.objects("events")
    odd = appliance.cluster.get("services", NAMESPACE, "odd")
    assert event["involvedObject"]["uid"] == odd["metadata"]["uid"]
    appliance.until(
        lambda: appliance.status().get("object_events") == {"written_total": 1, "failures_total": 0}, "counted"
    )
    assert 'pyconfd_object_events_total{result="written"} 1.0' in appliance.get("/metrics")[1]
