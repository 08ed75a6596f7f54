"""Let a model decide which heads it needs, then really remove the others."""

from infoflow.models import save_pruned as save_pruned

from ._prune import load_pruned as load_pruned
from ._prune import prune as prune
