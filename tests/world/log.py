"""Files of JSON lines that another process still writes."""

import json
from pathlib import Path
from typing import Any


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Give the objects of the lines that are whole: the last one may be half written; other lines are left out."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
