"""What others may see: status page, metrics, logs."""
