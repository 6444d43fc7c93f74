"""What the changelog says of the version that is released."""

import re


def problem(changelog: str, version: str) -> str:
    """Return what the changelog lacks for a release of ``version``; empty where it is complete."""
    heads = re.findall(r"^## \[([^\]]+)\](.*)$", changelog, re.MULTILINE)
    numbered = [(name, rest) for name, rest in heads if name.lower() != "unreleased"]
    if not numbered or numbered[0][0] != version:
        newest = f"its newest is {numbered[0][0]}" if numbered else "it has none"
        return f"CHANGELOG.md needs a section ## [{version}] - YYYY-MM-DD above the others; {newest}"
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", numbered[0][1]):
        return f"CHANGELOG.md: the section of {version} needs its date: ## [{version}] - YYYY-MM-DD"
    if not _entries(changelog, version):
        return f"CHANGELOG.md: the section of {version} is empty"
    if left := _entries(changelog, "Unreleased"):
        return f"CHANGELOG.md: {len(left)} lines stand under Unreleased; move them to {version}"
    return ""


def _entries(changelog: str, name: str) -> list[str]:
    found = re.search(rf"^## \[{re.escape(name)}\].*?$(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return re.findall(r"^- \S", found[1], re.MULTILINE) if found else []
