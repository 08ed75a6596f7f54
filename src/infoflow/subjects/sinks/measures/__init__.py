"""Attention sinks, massive activations, and the loss without the largest activations."""

from ._attention_sinks import ATTENTION_SINK
from ._attention_sinks import AttentionSinks as AttentionSinks
from ._massive import MASSIVE_ACTIVATION
from ._massive import MassiveActivations as MassiveActivations
from ._massive_ablation import MASSIVE_ABLATION
from ._massive_ablation import MassiveAblation as MassiveAblation

MEASURES = (AttentionSinks, MassiveActivations, MassiveAblation)
