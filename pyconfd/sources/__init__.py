"""Where Snapshots and fragments come from."""
