"""`infoflow tune`."""

from ._tune import tune as tune
