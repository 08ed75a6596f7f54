"""Figures of how models developed in training, all by number of updates."""
