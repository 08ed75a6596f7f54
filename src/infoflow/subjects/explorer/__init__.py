"""The explorer: a local page that shows a model at work on any sentence."""

COMMANDS = {"explore": ("Begin here", 4)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
