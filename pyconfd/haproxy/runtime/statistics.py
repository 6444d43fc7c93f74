"""What HAProxy answers to ``show stat``.

Source: HAProxy management manual, 9.1 (CSV format), 9.3 (``show stat``).
"""

import csv
from collections.abc import Iterator
from operator import itemgetter


def rows_of(answer: str, *columns: str) -> Iterator[tuple[str, ...]]:
    """Return the cells of these columns (two or more) of each row; a row that is cut short is left out.

    Raises:
        ValueError: it has another form, or no such column.
    """
    head, *rows = [*csv.reader(answer.lstrip("# \n").splitlines())] or [[]]
    if not set(columns) <= set(head):
        raise ValueError(answer.strip()[:200] or "an empty answer")
    return map(itemgetter(*map(head.index, columns)), (row for row in rows if len(row) >= len(head)))


def number(cell: str) -> int:
    """Return the number in a cell, 0 where it is empty."""
    return int(cell) if cell.isdigit() else 0
