"""Arguments to calls; no logic."""
