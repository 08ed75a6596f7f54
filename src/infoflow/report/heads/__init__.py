"""Figures of what attention heads do, and of which heads matter."""
