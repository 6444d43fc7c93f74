"""Clients of the floating address: ``client.py HOST LIMIT_S``, until standard input ends.

One opens a new connection each 5 ms; four others keep theirs and ask on them each 50 ms. A JSON object for each 100 ms
says who answers, the last one what came of it all.
"""

import asyncio
import itertools
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

STEP_S = 0.005
MOST_AT_ONCE = 100
"""More new connections are not open at a time: a client without a processor to spare asks less, and waits no longer."""
STALL_S = 0.2
"""Something is due here more often: of a longer pause only so much was a wait for others."""
KEPT, KEPT_STEP_S = 4, 0.05
REPORT_S = 0.1
NAME = "web.example.com"


@dataclass(slots=True)
class Seen:
    """What came back: when each request began, and who answered; "" where it failed."""

    answers: list[tuple[float, str]] = field(default_factory=list)
    broken: int = 0
    """Requests that failed on a connection that was there."""
    good: int = 0
    who: str = ""

    def add(self, began: float, who: str) -> None:
        self.answers.append((began, who))
        if who:
            self.good += 1
            self.who = who

    def document(self) -> dict[str, Any]:
        answers = sorted(self.answers)
        good = [began for began, who in answers if who]
        gaps = [after - before for before, after in itertools.pairwise(good)]
        return {
            "requests": len(answers),
            "failed": len(answers) - len(good),
            "broken": self.broken,
            "gap_ms": round(max(gaps, default=0.0) * 1000, 1),
            "last": next((who for _, who in reversed(answers) if who), ""),
        }


class _OwnTime(asyncio.SelectorEventLoop):
    """A loop whose limits count the time in which this process could have run."""

    _passed = 0.0
    _looked = 0.0

    def time(self) -> float:
        now = time.monotonic()
        self._passed += min(now - self._looked, STALL_S)
        self._looked = now
        return self._passed


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, how: str) -> tuple[str, bool]:
    """Return who answered, "" for another answer than 200, and whether the connection ends.

    Raises:
        OSError, EOFError: there was no answer.
    """
    writer.write(f"GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: {how}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    return body.decode().strip() if " 200 " in lines[0] else "", "connection: close" in lines


async def _once(host: str, limit_s: float, began: float, seen: Seen) -> None:
    who, writer = "", None
    with suppress(OSError, TimeoutError, EOFError):
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(host, 80)
            who, _ = await _ask(reader, writer, "close")
    if writer is not None:
        writer.close()
    seen.add(began, who)


async def _new(host: str, limit_s: float, over: asyncio.Event, seen: Seen) -> None:
    tasks: set[asyncio.Task[None]] = set()
    started, count = time.monotonic(), 0
    while not over.is_set():
        if len(tasks) < MOST_AT_ONCE:
            task = asyncio.create_task(_once(host, limit_s, time.monotonic(), seen))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        count += 1
        late = time.monotonic() - (started + count * STEP_S)
        if late > 1.0:  # this process was kept from running: it asks on, and does not catch up
            started += late
        await asyncio.sleep(max(0.0, -late))
    await asyncio.gather(*tasks)


async def _kept(host: str, limit_s: float, over: asyncio.Event, seen: Seen) -> None:
    reader, writer = None, None
    while not over.is_set():
        began, who, ended, used = time.monotonic(), "", True, writer is not None
        with suppress(OSError, TimeoutError, EOFError):
            async with asyncio.timeout(limit_s):
                if reader is None or writer is None:
                    reader, writer = await asyncio.open_connection(host, 80)
                who, ended = await _ask(reader, writer, "keep-alive")
        seen.add(began, who)
        seen.broken += used and not who
        if ended and writer is not None:
            writer.close()
            reader, writer = None, None
        await asyncio.sleep(KEPT_STEP_S)
    if writer is not None:
        writer.close()


async def main(host: str, limit_s: float) -> None:
    new, kept, over = Seen(), Seen(), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    tasks = [asyncio.create_task(_new(host, limit_s, over, new))]
    tasks += [asyncio.create_task(_kept(host, limit_s, over, kept)) for _ in range(KEPT)]
    while not over.is_set():
        print(json.dumps({"who": new.who, "new": new.good, "kept": kept.good}), flush=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), REPORT_S)
    asyncio.get_running_loop().remove_reader(sys.stdin)
    await asyncio.gather(*tasks)
    print(json.dumps({"new": new.document(), "kept": kept.document()}), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=_OwnTime) as runner:
        runner.run(main(sys.argv[1], float(sys.argv[2])))
