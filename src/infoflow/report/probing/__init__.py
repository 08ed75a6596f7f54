"""Figures of probes: what each layer encodes, and how hard it is to extract."""
