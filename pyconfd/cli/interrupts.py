"""What Ctrl-C does while modules are imported."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fatal_interrupts() -> Iterator[None]:
    """End the process by Ctrl-C at once: an exception in the midst of an import may be swallowed by what it meets.

    It is so where nobody handles it in another way yet, and in the main thread, whose it is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
