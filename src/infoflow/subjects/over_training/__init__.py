"""Over training: when during a training each property appears."""

COMMANDS = {"over_training": ("More: train and measure", 7)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
