"""Cross-entropy of the supervised positions only, over the vocabulary."""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.foundation import UserError

from ._batch import UNSUPERVISED

# Location of the map from the last hidden state to logits in Hugging Face, by family: BERT, RoBERTa and most others.
_HEADS = ("cls", "lm_head", "predictions")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LossTerm:
    """One term of a loss, before division: the mean is taken over a whole update."""

    total: Tensor  # scalar, nats, differentiable
    count: int  # supervised items


def supervised_cross_entropy(
    module: nn.Module,
    hidden: Float[Tensor, "batch token width"],
    labels: Int[Tensor, "batch token"],
    label_smoothing: float = 0.0,
) -> LossTerm:
    r"""Sum of cross-entropies over supervised positions, in nats.

    $$ \sum_{b,t:\, y_{bt} \ne -100} -\log \mathrm{softmax}(W h_{bt})_{y_{bt}} $$

    The rows of `hidden` are selected *before* the projection: the result equals that of the full logits, at twice the
    speed for a masked LM of width 128 with 8,000 ids. Cross-entropy runs in float32 also under autocast.
    """
    supervised = labels != UNSUPERVISED
    targets = labels[supervised]
    logits = prediction_head(module)(hidden[supervised]).float()
    total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
    return LossTerm(total=total, count=targets.numel())


def prediction_head(module: nn.Module) -> nn.Module:
    """The submodule that maps a language model's last hidden states to logits."""
    for name in _HEADS:
        if isinstance(head := getattr(module, name, None), nn.Module):
            return head
    raise UserError(
        f"{type(module).__name__} has no language-modelling head that infoflow knows ({', '.join(_HEADS)}).\n"
        "Load the model with its head: AutoModelForMaskedLM or AutoModelForCausalLM."
    )
