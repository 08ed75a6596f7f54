"""The output head as a function of one state: the prediction if the last block had returned it."""

# N row, D model width, V vocabulary

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from infoflow.foundation import UserError

from ._anatomy import Stack
from ._first_pass import tiny_inputs
from ._losses import forward_logits, without_cache
from ._model import Model
from ._tap import tap


class _Encoded(BaseModelOutput):
    """An encoder's states only: mixtures of experts also need their routers' outputs."""

    router_logits = None
    router_probs = None


class Readout:
    """Everything between a model's last block and its logits. From `readout(model)`."""

    def __init__(
        self, model: Model, outputs: dict[nn.Module, Any], token_id: int, dtype: torch.dtype, vocabulary_size: int
    ) -> None:
        self.stack: Stack = model.anatomy.predicts
        """The stack with the head: the decoder of an encoder–decoder."""
        self.vocabulary_size = vocabulary_size
        self._model, self._outputs, self._token_id, self._dtype = model, outputs, token_id, dtype

    def __call__(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocabulary"]:
        """Logits of states in the position of the last block's output; differentiable in them.

        Do not call inside a `tap` of the same model, which would see the skipped blocks.
        """
        rows_ND = states.reshape(-1, states.shape[-1]).to(self._dtype)
        with _returning(self._outputs, rows_ND.unsqueeze(1)):
            logits_NV = forward_logits(self._model, self._inputs(len(rows_ND))).squeeze(1)
        return logits_NV.reshape(*states.shape[:-1], logits_NV.shape[-1])

    def _inputs(self, num: int) -> dict[str, Any]:
        """Any `num` sentences of one token: only their number matters."""
        ids = torch.full((num, 1), self._token_id, device=self._model.device)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if len(stacks := self._model.anatomy.stacks) > 1:
            encoded = torch.zeros(num, 1, stacks[0].width, dtype=self._dtype, device=self._model.device)
            inputs["encoder_outputs"] = _Encoded(last_hidden_state=encoded)  # type: ignore[arg-type]
            inputs["decoder_input_ids"] = inputs.pop("input_ids")
        return inputs | without_cache(self._model.module)


def readout(model: Model) -> Readout:
    """The map from the last block's output to the logits: final norm, prediction head, unembedding, scaling, bias.

    It is the model's own code: a forward pass whose blocks are skipped and return the given states. So it works for
    every family, whatever its head has (BERT's transform, OPT's projection, T5's scaling, Gemma's soft cap, Marian's
    bias), applies the final norm exactly once, and costs no block. It is checked on a few tokens here.

    Raises:
        UserError: The model has no language-model head, or its logits depend on more than the last block's output.
    """
    if model.task == "encoder":
        raise UserError(
            f"{model.name} has no language-model head, so its states cannot be read as predictions. Load it with its "
            "head: a masked LM, a causal LM or a sequence-to-sequence model."
        )
    inputs = tiny_inputs(model.module)
    outputs: dict[nn.Module, Any] = {}
    blocks = {model.module.get_submodule(layer.block) for layer in model.anatomy.predicts.layers}
    handles = [
        block.register_forward_hook(lambda block, args, output: outputs.update({block: output})) for block in blocks
    ]
    try:
        with torch.no_grad(), tap(model, hidden=True) as seen:
            logits = forward_logits(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    states = seen.hidden[model.anatomy.predicts.name][-1]
    result = Readout(model, outputs, int(inputs["input_ids"][0, 0]), states.dtype, logits.shape[-1])
    with torch.no_grad():
        _require_equal(model, result(states), logits)
    return result


@contextmanager
def _returning(outputs: dict[nn.Module, Any], states: Tensor) -> Iterator[None]:
    """Blocks only return `states`, in the form of their original outputs."""
    saved = {block: vars(block).get("forward") for block in outputs}
    try:
        for block, output in outputs.items():
            returned = states if isinstance(output, Tensor) else (states, *output[1:])
            block.forward = lambda *args, _returned=returned, **kwargs: _returned
        yield
    finally:
        for block, forward in saved.items():
            if forward is None:
                vars(block).pop("forward", None)
            else:
                block.forward = forward


def _require_equal(model: Model, logits: Tensor, expected: Tensor) -> None:
    tolerance = 1e-4 if expected.dtype in (torch.float32, torch.float64) else 2e-2
    if logits.shape != expected.shape or not (logits - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"The logits of {model.name} do not follow from its last block's output alone, so no lens can read them "
            "from a state. Measure this model without the lens."
        )
