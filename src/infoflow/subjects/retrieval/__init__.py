"""Retrieval: models that read passages, and what they know without them."""

COMMANDS = {"data index": ("More: data and machine", 5)}
"""For each command, the group that lists it in `--help` and its place in that group. The functions are in `command`."""
