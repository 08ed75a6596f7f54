"""Stages of a study on over scale."""

from ._over_scale import over_scale
