"""One rendering for many balancers: a producer puts it into etcd v3, consumers take it from there."""
