"""Plays the demo; Ctrl-C ends it at any time, also while its modules are still being imported."""

import signal
import sys

# A terminal that is closed, and kill, end it as Ctrl-C does: haproxy has a session of its own, and would stay.
for number in (signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_DFL:  # not of nohup
        signal.signal(number, signal.default_int_handler)
try:
    from tests.demo.playing import main

    code = main(sys.argv[1:])
except KeyboardInterrupt:
    sys.stdout.write("\nEverything has been stopped.\n")
    code = 0
sys.exit(code)
