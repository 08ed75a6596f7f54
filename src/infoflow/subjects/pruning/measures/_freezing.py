"""Which weights of a pruned model remain trainable."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch

from infoflow.foundation import UserError
from infoflow.models import Model


@contextmanager
def only_training(model: Model, stacks: Collection[str], rest: str) -> Iterator[None]:
    """Freeze parts of the model while heads of these stacks are pruned; afterwards everything is trainable as before.

    Args:
        stacks: Stacks whose heads are pruned.
        rest: `"auto"` freezes the decoder of an encoder–decoder if only its encoder is pruned, so that functions cannot
            move there; `"train"` freezes nothing, `"freeze"` the whole model.
    """
    if rest not in ("auto", "train", "freeze"):
        raise UserError(f'rest must be "auto", "train" or "freeze". Got {rest}.')
    decoder = rest == "auto" and len(model.anatomy.stacks) > 1 and set(stacks) == {"encoder"}
    encoder_only: set[torch.nn.Parameter] = set(model.module.get_encoder().parameters()) if decoder else set()
    frozen = [
        parameter
        for parameter in model.module.parameters()
        if parameter.requires_grad and (rest == "freeze" or (decoder and parameter not in encoder_only))
    ]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
