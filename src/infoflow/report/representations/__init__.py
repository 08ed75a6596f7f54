"""Figures of what representations contain, how they change, and how similar their spaces are."""
