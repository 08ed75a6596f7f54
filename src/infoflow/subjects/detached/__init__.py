"""Detached: whether a low share of the source in a translation's relevance shows that it ignores the source."""
