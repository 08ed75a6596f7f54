"""Figures of retrieval and memorisation."""
