"""Notebook displays of objects: pictures that need neither scripts nor a network."""
