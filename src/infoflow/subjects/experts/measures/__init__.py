"""The routing of tokens to experts."""

from ._routing import EXPERT_ROUTING
from ._routing import ExpertRouting as ExpertRouting

MEASURES = (ExpertRouting,)
