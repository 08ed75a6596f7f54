"""Input and result of a relevance method: the predictions of one sentence, and their relevance."""

# B sentence, T position

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import IGNORED, Model, decoder_inputs

from .._attention_rows import Array

_OURS = ("labels", "use_cache", "return_dict", "output_attentions", "output_hidden_states")
"""Arguments that relevance sets itself, or that do not affect it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentencePredictions:
    """One sentence and its predictions."""

    sentence: int
    inputs: dict[str, Any]  # the model's keyword arguments for this sentence alone
    positions: Int[Tensor, " seed"]  # along the logits: decoder steps, or tokens


def sentences(model: Model, batch: Mapping[str, Any] | str, position: int | Tensor | None) -> list[SentencePredictions]:
    """The sentences of a batch one by one, with the positions of the predictions to explain."""
    if isinstance(batch, str):
        batch = model.require_tokenizer()(batch, return_tensors="pt")
    inputs = _keywords(model, batch)
    real_BT = _real(model, inputs)
    if position is None:
        counted_BT = real_BT & _labelled(model, batch.get("labels"), real_BT)
    elif isinstance(position, Tensor):
        counted_BT = real_BT & position.to(real_BT.device)
    else:
        counted_BT = real_BT & _only(real_BT, position)
    return [
        SentencePredictions(
            sentence=row,
            inputs={name: _row(value, row, len(counted_BT)) for name, value in inputs.items()},
            positions=counted_T.nonzero().flatten().cpu(),
        )
        for row, counted_T in enumerate(counted_BT)
        if counted_T.any()
    ]


def _keywords(model: Model, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch on the model's device, without labels, with the decoder input that the labels imply."""
    inputs = {
        name: torch.as_tensor(value).to(model.device) if isinstance(value, Array | list) else value
        for name, value in batch.items()
        if name not in _OURS and value is not None
    }
    if "input_ids" not in inputs and "inputs_embeds" not in inputs:
        raise UserError(
            "batch must hold keyword arguments of the model's forward pass: input_ids (or inputs_embeds), "
            f"attention_mask and so on. Got {', '.join(batch) or 'nothing'}."
        )
    two = len(model.anatomy.stacks) > 1
    if two and "decoder_input_ids" not in inputs and "decoder_inputs_embeds" not in inputs:
        if "labels" not in batch:
            raise UserError(
                f"{model.name} translates from encoder to decoder and predicts decoder steps. Give batch the "
                "decoder_input_ids (the target sentence, shifted right) or labels (the target sentence)."
            )
        labels = torch.as_tensor(batch["labels"])
        inputs["decoder_input_ids"] = decoder_inputs(model, labels.masked_fill(labels == IGNORED, model.pad_token_id))[
            0
        ].to(model.device)
    return inputs


def _real(model: Model, inputs: dict[str, Any]) -> Bool[Tensor, "sentence token"]:
    """Tokens that the predicting stack reads, without padding."""
    two = len(model.anatomy.stacks) > 1
    start = "decoder_" if two else ""
    states = inputs.get(f"{start}input_ids", inputs.get(f"{start}inputs_embeds"))
    assert states is not None
    mask = inputs.get(f"{start}attention_mask")
    real = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if mask is None else mask.bool()
    return real & _not_padding(model, inputs, two, mask)


def _labelled(model: Model, labels: Any, real_BT: Tensor) -> Bool[Tensor, "sentence token"]:
    """Labelled positions for a masked LM or a decoder; all positions if there are no labels."""
    if labels is None or model.task == "causal-lm":
        return torch.ones_like(real_BT)
    given = torch.as_tensor(labels).to(real_BT.device) != IGNORED
    return given if given.shape == real_BT.shape else torch.ones_like(real_BT)


def _not_padding(model: Model, inputs: dict[str, Any], two: bool, mask: Tensor | None) -> Bool[Tensor, "..."] | bool:
    """Padding mask for a decoder input without one: trailing padding tokens, but never the first token."""
    if not two or mask is not None or "decoder_input_ids" not in inputs:
        return True
    is_padding = inputs["decoder_input_ids"] == model.pad_token_id
    trailing = is_padding.flip(1).long().cumprod(1).flip(1).bool()
    trailing[:, 0] = False
    return ~trailing


def _only(counted_BT: Bool[Tensor, "sentence token"], position: int) -> Bool[Tensor, "sentence token"]:
    length = counted_BT.shape[1]
    if not -length <= position < length:
        raise UserError(f"position must lie in 0..{length - 1}, or count from the end. Got {position}.")
    only = torch.zeros_like(counted_BT)
    only[:, position] = True
    return only


def _row(value: Any, row: int, num: int) -> Any:
    return value[row : row + 1] if isinstance(value, Tensor) and value.dim() and len(value) == num else value


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """A sentence whose predictions are to be explained."""

    model: Model
    predictions: SentencePredictions
    target: int | None  # token id; None: the top one

    def logits(self, output: object) -> Tensor:
        """Logits of the forward pass: (1 or more, token, vocabulary)."""
        if self.model.task == "encoder":
            raise UserError(
                f"{self.model.name} has no language-model head, so it predicts nothing that relevance could start "
                "from. Load it with its head, give a gradient method your own number to explain "
                "(output=function of the model's output), or use a forward method: alti or rollout."
            )
        # Models for pretraining predict sentence order too and name their token logits differently.
        return output.logits if getattr(output, "logits", None) is not None else output.prediction_logits  # type: ignore[attr-defined]

    def targets(self, logits: Float[Tensor, "seed vocabulary"]) -> Int[Tensor, " seed"]:
        """The token whose logit is explained at each position: the requested target, or the top one."""
        if self.target is None:
            return logits.argmax(dim=1)
        if not 0 <= self.target < logits.shape[1]:
            raise UserError(f"target is a token id in 0..{logits.shape[1] - 1}. Got {self.target}.")
        return logits.new_full((len(logits),), self.target, dtype=torch.long)


Place = tuple[str, str, int]  # stack, kind and layer of an attention module


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceRelevance:
    """The relevance for each seed (explained prediction) of one sentence."""

    heads: Mapping[Place, Float[Tensor, "seed head"]]
    """Relevance of each head of an attention module, summed over tokens and dimensions."""
    tokens: Mapping[str, Float[Tensor, "seed token"]]  # by stack: relevance of each token it reads
    absorbed: float = 0.0  # share of the relevance that biases took away before rescaling (`bias="absorb"`)


def joined(parts: Sequence[SentenceRelevance]) -> SentenceRelevance:
    """Several results joined along their seeds."""
    return SentenceRelevance(
        heads={key: torch.cat([part.heads[key] for part in parts]) for key in parts[0].heads},
        tokens={stack: torch.cat([part.tokens[stack] for part in parts]) for stack in parts[0].tokens},
        absorbed=sum(part.absorbed for part in parts) / len(parts),
    )
