"""Claims about pruning, and how their tables are read."""

from ._pruned_models import alive_by_kind
from .others import recovered_gaps
