"""Nodes and verdicts for the suites."""
