"""Figures of what attention heads do, and which of them matter."""
