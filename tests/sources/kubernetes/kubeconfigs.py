"""Kubeconfig files for tests."""

from pathlib import Path
from typing import Any

import yaml


def kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> str:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "contexts": [
                    {"name": "main", "context": {"cluster": "c", "user": "u"}},
                    {"name": "lost", "context": {"cluster": "c", "user": "nobody"}},
                ],
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)
