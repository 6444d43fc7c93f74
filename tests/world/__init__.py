"""The outside world in small: a fake Kubernetes API server, certificates and HTTP backends."""
