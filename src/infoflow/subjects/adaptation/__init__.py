"""Adaptation: how fine-tuning changes a model, and which parts of it a task needs."""

COMMANDS = {"tune": ("More: train and measure", 1)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
