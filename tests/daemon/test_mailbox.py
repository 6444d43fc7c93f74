import threading

from pyconfd.daemon.base_loop import Mailbox


def test_posts_are_counted_and_taken_once() -> None:
    mailbox = Mailbox()
    threads = [threading.Thread(target=mailbox.post) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert mailbox.take(0) == 10
    assert mailbox.take(0) == 0


def test_a_nudge_ends_the_wait_without_a_change() -> None:
    mailbox = Mailbox()
    threading.Thread(target=mailbox.nudge).start()

    assert mailbox.take(30) == 0
