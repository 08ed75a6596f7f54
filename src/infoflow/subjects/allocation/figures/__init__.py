"""Figures of allocation."""
