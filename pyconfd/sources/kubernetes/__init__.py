"""Reads a cluster: ordered API servers, list and watch, decoding."""
