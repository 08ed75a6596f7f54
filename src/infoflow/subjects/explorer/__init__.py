"""The explorer: a local page that shows a model at work on any sentence."""

COMMANDS = {"explore": ("Train and measure", 12)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
