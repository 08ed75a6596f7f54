"""Detached: whether the share of the source in a translation's relevance shows that it ignores its source."""
