"""Figures of which heads can go."""
