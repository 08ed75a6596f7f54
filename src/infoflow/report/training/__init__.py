"""Figures of how training went, and which parts of a model did it."""
