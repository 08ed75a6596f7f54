"""Spectra: measures of a layer that need no labels, and whether they find the layer that probes best."""
