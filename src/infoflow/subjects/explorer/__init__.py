"""The explorer: a local page that shows a model at work on any sentence."""

COMMANDS = {"explore": ("Begin here", 4)}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
