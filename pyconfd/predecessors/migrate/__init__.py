"""Predecessors' files to pyconfd's: Go templates, HAProxy texts, environments, command lines, keepalived. Pure."""
