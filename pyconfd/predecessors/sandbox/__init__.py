"""Templates that come from the cluster, rendered in a process of their own."""
