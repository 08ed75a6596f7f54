"""The comparison of several studies over scale."""

from ._over_scale import over_scale
