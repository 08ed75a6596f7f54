"""Alignment: maps between the representation spaces of encoders, and a map of objectives."""
