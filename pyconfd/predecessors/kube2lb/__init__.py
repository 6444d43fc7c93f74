"""Preset ``kube2lb``: Services of type NodePort and LoadBalancer, as kube2lb served them."""
