"""Benchmarks: one JSON object a line, ratios within one run. They measure; tests never assert a time."""
