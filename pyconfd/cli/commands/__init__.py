"""One file for each command: its arguments, what it does, and what it prints."""
