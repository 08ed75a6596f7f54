"""Detached: whether the source's share in the relevance of a translation shows that it ignores the source."""
