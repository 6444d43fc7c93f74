"""Preset ``gateway``: GatewayClasses, Gateways, routes, ReferenceGrants and BackendTLSPolicies of the Gateway API."""
