"""The presets, one module or package each, and what they share. Pure."""
