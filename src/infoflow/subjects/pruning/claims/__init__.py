"""Claims about pruning, and how their tables are read."""

from ._pruned_models import alive_by_kind
from .removed_heads import recovered_gaps
