"""Retrieval: models that read passages, and what they know without them."""

COMMANDS = {"data index": ("More: data and machine", 5)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
