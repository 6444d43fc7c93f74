"""Policies: what an object may ask for beside where its requests go, in words that exist once."""
