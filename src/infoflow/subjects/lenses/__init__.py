"""Lenses: how early a model's prediction can be read from its layers."""
