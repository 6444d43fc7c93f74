"""All that is for users of the systems before pyconfd: their presets, etcd, targets, and ``migrate``.

The rest knows nothing of it, but for the composition root: a contract in ``pyproject.toml`` says so.
"""
