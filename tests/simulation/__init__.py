"""A whole pyconfd and a real haproxy under random faults: seeded, repeatable, and cut down to the steps that matter."""
