"""``python -m tests.bench [NAME]``: all benchmarks, or those whose function or figure name holds NAME."""

import sys

from pyconfd.status.logging import configure
from tests.bench import (
    churn,
    dns,
    explaining,
    failover,
    hashing,
    live,
    neighbours,
    observing,
    pod_presets,
    policies,
    presets,
    proportion,
    publishing,
    reading,
    requests,
    routing,
    starting,
    traffic,
    translation,
    under_load,
)
from tests.bench.figures import Benchmark

BENCHMARKS: tuple[Benchmark, ...] = (
    reading.resync_cpu,
    reading.resync_memory,
    reading.watch_event_cpu,
    presets.preset_services,
    starting.first_configuration,
    starting.daemon_memory,
    pod_presets.pod_presets,
    proportion.whole_chain,
    routing.filtered_routes,
    proportion.after_a_list,
    proportion.chain_memory,
    translation.translation,
    routing.ingress_routes,
    routing.gateway_routes,
    routing.routes_memory,
    churn.change_path,
    churn.churn,
    live.live_1000_services,
    live.live_10000_services,
    neighbours.neighbours,
    under_load.stale_answers,
    under_load.change_bursts,
    under_load.rolling_updates,
    requests.request_cost,
    observing.observability_request_cost,
    observing.observability_counters,
    observing.observability_page,
    observing.observability_explain,
    policies.policies_new_value,
    policies.policies_unused_cost,
    policies.policies_used_cost,
    policies.policies_change_of_class,
    hashing.consistent_hashing,
    failover.failover,
    explaining.explanations,
    traffic.traffic_replay,
    publishing.status_published,
    dns.dns_follows,
    dns.dns_requests,
)


def main(only: str) -> int:
    """Run and print; return 1 where a goal was missed, 2 where no benchmark has that name."""
    configure("WARNING", "text")
    chosen = [b for b in BENCHMARKS if only in b.__name__] or (list(BENCHMARKS) if only else [])
    shown, missed = 0, False
    for benchmark in chosen:
        for figure in benchmark():
            if only in figure.name or only in benchmark.__name__:
                figure.show()
                shown += 1
                missed = missed or figure.met is False
    if not shown:
        sys.stderr.write(f"no benchmark is named {only}; there are: {', '.join(b.__name__ for b in BENCHMARKS)}\n")
        return 2
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
