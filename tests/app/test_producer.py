"""What cannot be published is said before anything is asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyconfd import app
from pyconfd.errors import ConfigurationError
from pyconfd.settings import Resolved, resolve


@pytest.mark.parametrize("command", [app.publish, lambda resolved: app.publish_once(resolved.settings)])
@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({"haproxy.enabled": "no"}, "haproxy.enabled"),
        ({"target.template": "/t/x.tpl", "target.output": "/o/x", "target.notify": "debug:"}, "target"),
    ],
)
def test_without_haproxy_there_is_nothing_to_publish(
    tmp_path: Path, command: Callable[[Resolved], object], flags: dict[str, str], place: str
) -> None:
    targets = '[{"name": "edge", "template": "/t/edge.tpl", "output": "/o/edge", "notify": "debug:"}]'
    own = {"state_dir": str(tmp_path / "state"), "runtime_dir": str(tmp_path / "run"), "targets": targets}
    with pytest.raises(ConfigurationError) as failed:
        command(resolve(own | flags, {}))
    (problem,) = failed.value.problems
    assert problem.place == place
    assert "these settings serve none" in problem.message
    assert "pyconfd run" in problem.remedy
    assert not (tmp_path / "run").exists()
