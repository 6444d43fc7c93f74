"""Hosts and paths that lead to backends: shared by the presets whose objects are routes of HTTP."""
