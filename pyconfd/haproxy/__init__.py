"""Everything that knows HAProxy: its text, its process, its files."""
