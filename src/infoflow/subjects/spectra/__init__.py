"""Spectra: measures of a layer that need no labels, and whether they find the layer that is best for probes."""
