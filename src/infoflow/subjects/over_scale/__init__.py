"""Over scale: verdicts and effects of several studies by size and budget."""

COMMANDS = {"over_scale": ("More: results of runs", 2)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
