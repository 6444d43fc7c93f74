"""``python -m pyconfd``."""

from pyconfd.cli.main import main

main()
