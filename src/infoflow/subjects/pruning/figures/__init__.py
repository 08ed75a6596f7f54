"""Figures of head pruning."""
