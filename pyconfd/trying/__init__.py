"""Trying a configuration out on one machine: everything on loopback, stand-ins for pods, a haproxy of its own."""
