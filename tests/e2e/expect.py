"""What the end-to-end tests expect again and again."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.world import forked
from tests.world.apiserver import ApiServer
from tests.world.appliance import Appliance
from tests.world.clients import Crowd

WATCHED = ("services", "endpointslices", "endpoints", "nodes")
"""What the preset of the appliance has watched."""


@contextmanager
def undisturbed(appliance: Appliance, name: str = "shop") -> Iterator[Crowd]:
    """Send requests all the time; at the end every one must have been answered by a pod of ``name``."""
    crowd = Crowd(appliance.http, f"{name}.example.com", clients=1, pause_s=0.02)
    try:
        yield crowd
        enough = crowd.seen().total() + 5
        appliance.until(lambda: crowd.seen().total() > enough, "requests are answered at the end too")
    finally:
        answers = crowd.stop()
    assert answers.total() > 0
    assert all(answer.startswith(f"{name}-") for answer in answers), str(answers)


def serving(appliance: Appliance, name: str = "shop", **annotations: Any) -> None:
    """Create a Service and start everything; it serves when this returns."""
    appliance.serve(name, **annotations)
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    appliance.until(lambda: appliance.ask(name).startswith(f"{name}-"), f"{name} is served")


def complaints(appliance: Appliance, *words: str) -> list[dict[str, Any]]:
    """Return the warnings and errors of the log in which each of ``words`` occurs."""
    lines = [line for line in appliance.events() if line["level"] in {"warning", "error", "critical"}]
    return [line for line in lines if all(word in str(line) for word in words)]


def one_complaint(appliance: Appliance, *words: str) -> dict[str, Any]:
    """Return the one complaint of the log with ``words``, which ``pyconfd status`` shows too; it says what to do."""
    found = complaints(appliance, *words)
    assert len(found) == 1, found
    shown = appliance.command("status")
    assert shown.returncode == 1, shown.stdout
    for word in words:
        assert word in shown.stdout
    if "remedy" in found[0]:
        assert found[0]["remedy"]
        assert found[0]["remedy"].splitlines()[0][:60] in shown.stdout
    return found[0]


def found_in(*folders: Path) -> list[Path]:
    """Return all that is there, while a daemon writes: a directory that goes meanwhile is passed over."""
    return [Path(at, name) for each in folders for at, inside, files in os.walk(each) for name in (*inside, *files)]


def texts_in(*folders: Path) -> Iterator[tuple[Path, str]]:
    """Return each file with its text; one that goes meanwhile is left out."""
    for path in found_in(*folders):
        with suppress(FileNotFoundError, IsADirectoryError):
            yield path, path.read_text(encoding="utf-8", errors="replace")


def edit(path: Path, text: str) -> None:
    """Replace a file at once, as editors do: half of it must not be seen."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def new_pod_answers(appliance: Appliance, name: str = "shop") -> None:
    """Scale ``name`` up and see that the new pod gets requests."""
    pod = appliance.scale_up(name)
    appliance.until(lambda: appliance.ask(name) == pod, f"{pod} answers")


def list_again(server: ApiServer) -> None:
    """End the watch of each resource once, so that it is listed again. One that had not begun would be passed over."""
    server.wait_for_watches(*WATCHED)
    for each in WATCHED:
        server.faults.watch_error(410, each)


def attempts_fail(appliance: Appliance, number: int = 3) -> None:
    """Wait until so many attempts have failed from now on: the start itself may have seen some on a busy machine."""

    def failed() -> int:
        return sum(appliance.status().get("failures_by_step", {}).values())

    enough = failed() + number
    appliance.until(lambda: failed() >= enough, f"{number} attempts failed")


def beats(appliance: Appliance, seconds: float = 2.5) -> None:
    """Wait until the loop has gone on for so long: whatever it would do by itself has then been done, and is shown."""

    def beat() -> float:
        return float(appliance.status().get("heartbeat_at", 0.0))  # nobody answers while it restarts

    # The newest status may be from before what the caller has seen.
    at = max(time.time(), (beat() or time.time()) + seconds)
    appliance.until(lambda: beat() >= at, "the loop goes on")


def all_is_well(appliance: Appliance) -> None:
    """Wait until ``pyconfd status`` has nothing to complain about; while it restarts it does not answer."""
    appliance.until(
        lambda: appliance.settled() and not appliance.status().get("problems", "no answer"), "all is well again"
    )


def command_reload(appliance: Appliance, before: str = "") -> None:
    """Reload by a command of the operator's, which does ``before`` first."""
    script = appliance.folder / "reload"
    script.write_text(f"#!/bin/sh\n{before}\nkill -USR2 $(cat {appliance.haproxy.pid_file})\n")
    script.chmod(0o755)
    appliance.values["haproxy"] |= {"reload_method": "command", "reload_cmd": str(script)}


def preflight(appliance: Appliance, *arguments: str, code: int = 0) -> list[dict[str, str]]:
    """Return the findings of ``pyconfd preflight``; each that is not ok has a remedy."""
    appliance.write_settings()
    # Half a dozen programs one after the other: Appliance.command would not wait for them on a busy machine.
    given = ("preflight", "--config", str(appliance.config), "--json", *arguments)
    done = forked.run(given, appliance.environment(), patience_s=250.0)
    told = json.loads(done.stdout)
    assert done.returncode == code, (told, done.stderr)
    assert told["passed"] is (code == 0)
    findings: list[dict[str, str]] = told["findings"]
    for finding in findings:
        assert finding["message"]
        assert bool(finding["remedy"]) is (finding["level"] != "ok"), finding
    return findings


def of(findings: list[dict[str, str]], level: str) -> list[dict[str, str]]:
    """Return the findings of one level."""
    return [finding for finding in findings if finding["level"] == level]
