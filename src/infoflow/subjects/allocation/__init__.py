"""Loss change allocation: which parameters did the learning."""

COMMANDS = {"dynamics": ("More: results of runs", 0)}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
