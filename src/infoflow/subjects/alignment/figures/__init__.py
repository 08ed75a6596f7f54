"""Figures of the objective map."""
