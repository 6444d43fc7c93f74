"""Metrics of programs beside the daemon, as a file for the node exporter's directory of text files."""

from collections.abc import Iterable, Mapping


def exposition(prefix: str, families: Mapping[str, Iterable[tuple[str, object]]]) -> str:
    """Return metrics in Prometheus' text format; each sample is its labels, like ``a="b"``, and its value.

    A name that ends in ``_total`` is a counter, one in ``_bucket`` is of a histogram, any other one a gauge. Labels
    hold names of the settings or of objects only, which need no escaping.
    """
    lines = []
    for name, samples in families.items():
        kind = "counter" if name.endswith("_total") else "histogram" if name.endswith("_bucket") else "gauge"
        lines.append(f"# TYPE {prefix}_{name.removesuffix('_bucket')} {kind}")
        lines += [
            f"{prefix}_{name}{{{labels}}} {value}" if labels else f"{prefix}_{name} {value}"
            for labels, value in samples
        ]
    return "\n".join(lines) + "\n"
