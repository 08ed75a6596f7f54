"""Neurons: which feed-forward neurons are dead, detect single tokens, or follow position."""
