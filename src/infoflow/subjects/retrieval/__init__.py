"""Retrieval: models that read passages, and what they know without them."""

COMMANDS = {"data index": ("More: data and machine", 5)}
"""Group in `--help` of each command, and its place in the group. The functions are in `command`."""
