"""Plays the demo; Ctrl-C ends it at any time, also while its modules are still being imported."""

import sys

try:
    from tests.demo.playing import main

    code = main(sys.argv[1:])
except KeyboardInterrupt:
    sys.stdout.write("\nEverything has been stopped.\n")
    code = 0
sys.exit(code)
