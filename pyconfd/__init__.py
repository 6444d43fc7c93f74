"""Keeps HAProxy in step with a Kubernetes cluster: watch, render the operator's fragments, check, apply safely."""

__version__ = "0.2.0"
