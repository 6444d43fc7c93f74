"""The official conformance suite of the Gateway API against pyconfd, on a real control plane (``make conformance``)."""
