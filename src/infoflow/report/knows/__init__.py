"""Figures of what representations hold, how they change, and how alike their spaces are."""
