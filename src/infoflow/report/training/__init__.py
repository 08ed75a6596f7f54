"""Figures of training: scores, losses and costs, and the parts of a model that lowered the loss."""
