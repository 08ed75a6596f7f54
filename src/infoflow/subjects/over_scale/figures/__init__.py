"""Figures of claims over scale."""
