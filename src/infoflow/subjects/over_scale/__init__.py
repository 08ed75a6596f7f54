"""Over scale: verdicts and effects of several studies by size and budget."""

COMMANDS = {"over_scale": ("More: results of runs", 2)}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
