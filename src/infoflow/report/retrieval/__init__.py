"""Figures about looking things up and keeping them."""
