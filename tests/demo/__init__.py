"""``make demo``: the main job on an embedded cluster, everything on loopback."""
