"""Probing: what each layer encodes, and how hard it is to extract."""

COMMANDS = {
    "probe": ("More: train and measure", 3),
    "fill_in": ("More: train and measure", 4),
    "bert_score": ("More: train and measure", 5),
}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
