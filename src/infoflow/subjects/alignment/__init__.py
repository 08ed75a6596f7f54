"""Alignment: maps between the spaces of encoders, and a map of objectives."""
