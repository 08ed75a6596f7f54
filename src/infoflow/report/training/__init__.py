"""Figures of training: its course, and which parts of a model lowered the loss."""
