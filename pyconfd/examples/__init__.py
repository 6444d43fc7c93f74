"""Templates that pyconfd ships beside its fragments: for HAProxy, Caddy and nginx, with the names of kube2lb."""
