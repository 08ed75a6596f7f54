"""Loss change allocation: which parameters did the learning."""

COMMANDS = {"dynamics": ("More: results of runs", 0)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
