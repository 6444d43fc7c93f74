"""DNS names that point at the nodes that can serve; lives on when the daemon fails."""
