"""Preset ``ingress``: Ingresses of networking.k8s.io/v1 whose class is pyconfd's."""
