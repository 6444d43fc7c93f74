"""Answers "why is my service not there": pure, from what the daemon saw last. Made on request."""
