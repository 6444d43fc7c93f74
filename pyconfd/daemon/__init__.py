"""The loop: collect changes, reconcile, tell systemd."""
