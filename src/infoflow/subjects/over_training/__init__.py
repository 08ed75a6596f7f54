"""Over training: when during a training each property appears."""

COMMANDS = {"over_training": ("Train and measure", 10)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
