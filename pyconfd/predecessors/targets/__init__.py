"""Load balancers other than the main one: template, file, check, notifier."""
