"""Preset ``kubefigurator``: Services labelled for haproxy-kubefigurator."""
