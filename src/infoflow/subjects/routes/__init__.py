"""Routes: through which tokens, heads and feed-forward blocks the information of one prediction flows."""
