"""Tests of fragments: what a test file says, whether a rendering holds it, and how that is reported. Pure."""
