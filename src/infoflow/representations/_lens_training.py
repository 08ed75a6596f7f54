"""Training of the tuned lens: SGD on the divergence from the model's own prediction."""

# R row (a token occurrence), D model width, V vocabulary

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.models import Readout

from ._tuned_lens import TunedLens

_LOGITS = 1 << 22  # held at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class LensTraining:
    """How a tuned lens is trained.

    The optimiser is that of the authors' code: SGD with Nesterov momentum, a learning rate of 1 before the factor (1 −
    momentum), weight decay, clipping over all layers together, and a linear decline of the rate to zero. They run 250
    steps of 2^18 = 262,144 tokens; the default here is affordable on a laptop for every model of a study.
    """

    steps: int = 200
    tokens: int = 64  # per step
    learning_rate: float = 1.0  # times (1 − momentum), which undoes how PyTorch scales momentum
    momentum: float = 0.9
    weight_decay: float = 1e-3
    clip: float = 1.0  # norm of the gradient of all layers together

    def __post_init__(self) -> None:
        for name in ("steps", "tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a lens must be at least 1. Got {getattr(self, name)}.")


def fit_tuned_lens(
    read: Readout, batches: Iterable[Float[Tensor, "layer row width"]], training: LensTraining | None = None
) -> TunedLens:
    r"""Train a tuned lens on the states of `batches`, one step each.

    $$ \min_{A, b} \; \sum_{l < L} \mathbb E \, \mathrm{KL}(p \,\|\, q_l), \qquad
       p = \mathrm{softmax}\, r(h_L), \quad q_l = \mathrm{softmax}\, r(h_l + A_l h_l + b_l) $$

    with r the model's readout and h_l the states of one token. The model's weights are unchanged; the result depends
    only on the batches.

    Args:
        read: From `models.readout(model)`.
        batches: States 0..L of some tokens, one tensor per step (further ones are not consumed).
        training: Steps and optimiser.

    Raises:
        UserError: There are fewer batches than steps.

    Source: [@belrose2023].
    """
    training = training or LensTraining()
    layers, steps = len(read.stack.layers), 0
    lens = TunedLens(layers, read.stack.width)
    optimizer = torch.optim.SGD(
        lens.parameters(),
        lr=training.learning_rate * (1 - training.momentum),
        momentum=training.momentum,
        nesterov=training.momentum > 0,
        weight_decay=training.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / training.steps)
    for states_LRD in batches:
        lens.to(states_LRD.device)
        optimizer.zero_grad()
        accumulate_gradients(lens, read, states_LRD)
        nn.utils.clip_grad_norm_(lens.parameters(), training.clip)
        optimizer.step()
        schedule.step()
        steps += 1
        if steps == training.steps:
            return lens.eval()
    raise UserError(f"A tuned lens of {training.steps} steps needs as many batches of states. Got {steps}.")


def accumulate_gradients(lens: TunedLens, read: Readout, states: Float[Tensor, "layer row width"]) -> None:
    """Add the gradient of the mean divergence, summed over layers, to the translators' `grad`.

    The gradient of KL(p || q) with respect to the logits of q is q − p, so no graph is kept after the softmax.
    """
    num_rows = states.shape[1]
    for rows_LRD in row_chunks(states, read):
        with torch.no_grad():
            final_RV = read(rows_LRD[-1]).float().softmax(dim=-1)
        for layer, translator in enumerate(lens.translators):
            with torch.enable_grad():
                logits_RV = read(lens(rows_LRD[layer], layer)).float()
            towards_RV = logits_RV.detach().softmax(dim=-1).sub_(final_RV).div_(num_rows)
            torch.autograd.backward(logits_RV, towards_RV, inputs=list(translator.parameters()))


def row_chunks(states: Float[Tensor, "layer row width"], read: Readout) -> Iterator[Float[Tensor, "layer chunk width"]]:
    """Rows in chunks with small logits: a vocabulary may be a thousand times as wide as a state."""
    yield from states.split(max(1, _LOGITS // read.vocabulary_size), dim=1)
