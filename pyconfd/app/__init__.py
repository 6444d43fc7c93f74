"""The composition root: the only place that knows every part. The commands call what is named here, nothing else.

Each name is imported when it is first asked for: a command does not wait for what only the others need.
"""

import gc
import importlib
from typing import TYPE_CHECKING, Any

from pyconfd.fragments import directory as fragments_dir
from pyconfd.fragments import of_presets as fragments
from pyconfd.fragments import tests_of as fragment_tests
from pyconfd.interrupts import fatal_interrupts

if TYPE_CHECKING:
    from pyconfd.app.adopting import adopt
    from pyconfd.app.asking import allow, status, watch
    from pyconfd.app.consumer import consume
    from pyconfd.app.daemon import run
    from pyconfd.app.explaining import explain
    from pyconfd.app.floating import vip_config, vip_order, vip_status
    from pyconfd.app.generations import diff, history, rollback, unpin
    from pyconfd.app.inspecting import preflight
    from pyconfd.app.once import check_once, plan_once, rbac, record, render_once
    from pyconfd.app.operating import pause, resume, servers, set_servers
    from pyconfd.app.producer import publish, publish_once
    from pyconfd.app.rereading import reload
    from pyconfd.app.testing import run_tests, watch_tests
    from pyconfd.app.trying import try_snapshot
    from pyconfd.app.upgrading import upgrade_check

__all__ = [
    "adopt",
    "allow",
    "check_once",
    "consume",
    "diff",
    "explain",
    "fragment_tests",
    "fragments",
    "fragments_dir",
    "history",
    "pause",
    "plan_once",
    "preflight",
    "publish",
    "publish_once",
    "rbac",
    "record",
    "reload",
    "render_once",
    "resume",
    "rollback",
    "run",
    "run_tests",
    "servers",
    "set_servers",
    "status",
    "try_snapshot",
    "unpin",
    "upgrade_check",
    "vip_config",
    "vip_order",
    "vip_status",
    "watch",
    "watch_tests",
]

_MODULES = {
    "adopting": ("adopt",),
    "asking": ("allow", "status", "watch"),
    "consumer": ("consume",),
    "daemon": ("run",),
    "explaining": ("explain",),
    "floating": ("vip_config", "vip_order", "vip_status"),
    "generations": ("diff", "history", "rollback", "unpin"),
    "inspecting": ("preflight",),
    "once": ("check_once", "plan_once", "rbac", "record", "render_once"),
    "operating": ("pause", "resume", "servers", "set_servers"),
    "producer": ("publish", "publish_once"),
    "rereading": ("reload",),
    "testing": ("run_tests", "watch_tests"),
    "trying": ("try_snapshot",),
    "upgrading": ("upgrade_check",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A thousand modules hold no garbage: looking for it meanwhile, and in each later round, would cost a sixth of
    # the time that the import takes.
    gc.disable()
    try:
        with fatal_interrupts():
            module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
        gc.freeze()
    finally:
        gc.enable()
    return getattr(module, name)
