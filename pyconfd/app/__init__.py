"""The composition root: the only place that knows every part. The commands call what is named here, nothing else."""

from pyconfd.app.asking import StatusReport, Watched, allow, status, watch
from pyconfd.app.consumer import consume
from pyconfd.app.daemon import run
from pyconfd.app.once import CheckReport, PlanReport, Rendered, check_once, plan_once, rbac, record, render_once
from pyconfd.app.operating import ServerRow, pause, resume, servers, set_servers
from pyconfd.app.producer import publish, publish_once
from pyconfd.fragments import directory as fragments_dir
from pyconfd.fragments import of_presets as fragments

__all__ = [
    "CheckReport",
    "PlanReport",
    "Rendered",
    "ServerRow",
    "StatusReport",
    "Watched",
    "allow",
    "check_once",
    "consume",
    "fragments",
    "fragments_dir",
    "pause",
    "plan_once",
    "publish",
    "publish_once",
    "rbac",
    "record",
    "render_once",
    "resume",
    "run",
    "servers",
    "set_servers",
    "status",
    "watch",
]
