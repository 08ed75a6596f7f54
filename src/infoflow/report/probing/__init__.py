"""Figures of probes: what can be read from each layer, and how hard it is to read."""
