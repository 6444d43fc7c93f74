"""``python -m pyconfd``, and the command ``pyconfd``."""

from pyconfd.cli.interrupts import fatal_interrupts


def main() -> None:
    """Import the program and run it."""
    with fatal_interrupts():
        from pyconfd.cli.main import main as program  # noqa: PLC0415 - Ctrl-C is to end this too
    program()


if __name__ == "__main__":
    main()
