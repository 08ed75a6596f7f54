"""Adaptation: how fine-tuning changes a model, and which parts of it a task needs."""

COMMANDS = {"tune": ("More: train and measure", 1)}
"""Group in `--help` of each command, and its place in the group. The functions are in `command`."""
