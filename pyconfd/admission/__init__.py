"""What may be served of what the cluster asks for [pure]."""
