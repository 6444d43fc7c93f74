"""How the demo tells what it shows."""

import sys

COLOUR = sys.stdout.isatty()


def paint(code: str, text: str) -> str:
    """Return a text in a colour where colours can be seen."""
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def title(text: str) -> None:
    """Begin a scene."""
    sys.stdout.write(f"\n{paint('1;36', text)}\n")
    sys.stdout.flush()


def line(text: str) -> None:
    """Show something."""
    sys.stdout.write(f"   {text}\n")
    sys.stdout.flush()


def good(text: str) -> None:
    """Show that a promise held."""
    line(f"{paint('32', 'ok')} {text}")


def require(condition: object, what: str) -> None:
    """Fail the demo unless ``condition`` holds."""
    if not condition:
        raise AssertionError(what)
