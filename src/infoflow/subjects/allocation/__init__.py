"""Loss change allocation: which parameters did the learning."""

COMMANDS = {"dynamics": ("Results of a run", 0)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
