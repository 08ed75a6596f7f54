"""Claims about over training, and how their tables are read."""

from ._over_training import FINDINGS_OVER_TRAINING, FINDINGS_SINCE, findings_over_training, movement, verdict_runs
