"""One module for each way of reading a Snapshot. Pure."""
