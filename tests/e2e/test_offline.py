"""The commands that print: from files that kubectl wrote or from a cluster, with exit codes for scripts."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
import yaml

from pyconfd.haproxy.runtime.route_figures import FILE_NAME
from tests.e2e.expect import serving
from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy

OK, FAILED, CHANGES, USAGE, TEMPORARY, CONFIGURATION = 0, 1, 2, 64, 75, 78


def everything_in(folder: Path) -> dict[str, str]:
    """Return the digest and time of each file, so that any change shows; but for what a running daemon counts."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".log")
    files = (path for path in files if path.parent.name != "run" and path.name != FILE_NAME)
    return {str(path): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}" for path in files}


def dumps(appliance: Appliance) -> dict[str, Path]:
    """Write what kubectl would print, in the three forms that people have."""
    listing = appliance.folder / "list.json"
    appliance.cluster.dump(listing)
    objects = msgspec.json.decode(listing.read_bytes())["items"]
    documents = appliance.folder / "documents.yaml"
    documents.write_text(yaml.safe_dump_all(objects))
    as_yaml = appliance.folder / "list.yaml"
    as_yaml.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(reversed(objects))}))
    return {"json": listing, "documents": documents, "yaml": as_yaml}


def test_render_and_check_work_offline_and_change_nothing(appliance: Appliance) -> None:
    appliance.serve("shop", pods=2)
    appliance.serve("blog")
    appliance.serve("thief", {"domain": "shop.example.com", "proto": "http"})
    appliance.write_settings()
    (server,) = appliance.servers
    files = dumps(appliance)
    server.refuse()
    before = everything_in(appliance.folder)
    texts = set()
    for path in files.values():
        rendered = appliance.command("render", "--snapshot", str(path))
        assert rendered.returncode == OK, rendered.stderr
        assert "1 object was left out" in rendered.stderr
        texts.add(rendered.stdout)
    assert len(texts) == 1, "the form and the order of the objects make no difference"
    (text,) = texts
    assert text.count("    server shop-") == 2
    checked = appliance.command("check", "--snapshot", str(files["yaml"]))
    assert checked.returncode == OK, checked.stderr
    assert "HAProxy 2" in checked.stdout or "HAProxy 3" in checked.stdout
    planned = appliance.command("plan", "--snapshot", str(files["json"]))
    assert planned.returncode == CHANGES
    assert "+    server shop-" in planned.stdout
    assert everything_in(appliance.folder) == before
    assert server.seen() == []


def test_exit_codes_tell_what_may_help(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    appliance.values["kubernetes"] |= {"connect_timeout_s": 1, "read_timeout_s": 1}
    appliance.serve("shop")
    appliance.write_settings()
    path = str(dumps(appliance)["json"])
    assert appliance.command("render", "--no-such-flag").returncode == USAGE
    assert appliance.command("render", "--snapshot", "no-such-file").returncode == USAGE
    assert appliance.run("render", "--config", "/no/such/file").returncode == CONFIGURATION
    damaged = appliance.folder / "damaged.yaml"
    damaged.write_text("kind: [List\n")
    assert appliance.command("render", "--snapshot", str(damaged)).returncode == CONFIGURATION
    (templates / "06-extra.conf").write_text("backend broken\n    no-such-keyword\n")
    assert appliance.command("render", "--snapshot", path).returncode == OK, "only HAProxy knows its keywords"
    refused = appliance.command("check", "--snapshot", path)
    assert refused.returncode == FAILED
    assert "06-extra.conf line 2" in refused.stderr
    assert appliance.command("plan", "--snapshot", path).returncode == FAILED
    (templates / "06-extra.conf").unlink()
    (templates / "06-extra.tmpl").write_text("{{ nothing }}\n")
    undefined = appliance.command("render", "--snapshot", path)
    assert undefined.returncode == FAILED
    assert "06-extra.tmpl line 1" in undefined.stderr
    (templates / "06-extra.tmpl").unlink()
    appliance.servers[0].refuse()
    for command, *arguments in (("plan",), ("record", "-")):
        away = appliance.command(command, *arguments)
        assert away.returncode == TEMPORARY, away.stderr
        assert "cannot connect" in away.stderr
        assert "Traceback" not in away.stderr


def test_plan_beside_a_running_daemon(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    appliance.until(appliance.written, "the file is written")
    before = everything_in(appliance.folder)
    unchanged = appliance.command("plan")
    assert (unchanged.returncode, everything_in(appliance.folder)) == (OK, before), unchanged.stdout
    appliance.stop()
    appliance.scale_up("shop")
    (templates / "06-extra.conf").write_text("backend spare\n    mode http\n")
    before = everything_in(appliance.folder)
    planned = appliance.command("plan", "--json")
    assert planned.returncode == CHANGES, planned.stderr
    plan = json.loads(planned.stdout)
    assert "section_added" in plan["plan"]["reasons"]
    assert "backend spare" in plan["diff"]
    assert everything_in(appliance.folder) == before


def test_record_gives_a_snapshot_without_secrets_that_renders_the_same(appliance: Appliance) -> None:
    appliance.serve("shop", pods=2)
    secret = {"metadata": {"name": "cert", "namespace": NAMESPACE}, "type": "kubernetes.io/tls"}
    appliance.cluster.put("secrets", secret | {"data": {"tls.crt": "Y2VydA==", "tls.key": "aGlkZGVu"}})
    appliance.write_settings()
    recorded = appliance.folder / "recorded.yaml"
    done = appliance.command("record", str(recorded), "--kubernetes-secret-namespaces", NAMESPACE)
    assert done.returncode == OK, done.stderr
    assert "aGlkZGVu" not in recorded.read_text()
    assert recorded.stat().st_mode & 0o777 == 0o600
    live = appliance.command("render")
    assert live.returncode == OK, live.stderr
    appliance.servers[0].refuse()
    offline = appliance.command("render", "--snapshot", str(recorded))
    assert (offline.returncode, offline.stdout) == (OK, live.stdout)
    assert "    server shop-2:" in offline.stdout
