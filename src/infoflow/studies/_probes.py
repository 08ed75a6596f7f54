"""Names of the probes that a plan can ask for."""

OF_TREES = "structural"
"""Probes the geometry of trees: it has no task."""
PROBES = ("linear", "mlp", "edge", "online", "variational", OF_TREES)
