"""The floating address: ``pyconfd-vip``, a small process beside keepalived that lives on when the daemon fails.

``hook`` is the program and its loop, ``monitor`` what it observes, ``policy`` what it decides from that.
"""
