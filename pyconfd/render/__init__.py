"""Fragments and a Context in, a Rendering out. Pure."""
