"""Figures of how alike the objectives of a study are."""
