"""The running HAProxy: its sockets, operations on it, what it answers, drift."""
