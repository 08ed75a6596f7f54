"""Adaptation: how fine-tuning changes a model, and which parts of it a task needs."""

COMMANDS = {"tune": ("More: train and measure", 1)}
"""For each command, the group that lists it in `--help` and its place in that group. The functions are in `command`."""
