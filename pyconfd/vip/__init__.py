"""The floating address: a small process beside keepalived that lives on when the daemon fails.

``policy`` decides, ``topology`` and ``frames`` are pure too; the others look and act, ``hook`` is the loop.
"""
