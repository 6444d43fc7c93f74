"""DNS names that point at the nodes that can serve; lives on when the daemon fails.

``service`` is the loop, ``activity`` decides whether this node counts as serving, ``planner`` what to change about a
name, ``agent`` when it is this node's turn at Route 53.
"""
