"""Over scale: verdicts and effects of several studies against size and budget."""

COMMANDS = {"over_scale": ("Results of a run", 2)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
