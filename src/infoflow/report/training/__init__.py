"""Figures of training: its course, and the parts of a model that lowered the loss."""
