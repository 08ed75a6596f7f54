"""Task scores: a model's loss, in nats per token."""

# B batch, T token, V vocabulary

import math
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError

from ._inputs import model_inputs
from ._model import Model

IGNORED = -100
"""Label of a position that is not scored."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SequenceLosses:
    """Cross-entropy of each sentence, as sums of nats, so that batches of any size add up."""

    sums: Float[Tensor, " sentence"]
    counts: Int[Tensor, " sentence"]  # scored tokens

    @property
    def mean(self) -> float:
        """Nats per scored token, over all sentences."""
        return float(self.sums.double().sum() / self.counts.sum()) if self.counts.sum() else math.nan

    @property
    def perplexity(self) -> float:
        """`exp(mean)`."""
        return math.exp(self.mean)


def concatenate_losses(parts: list[SequenceLosses]) -> SequenceLosses:
    """The losses of several batches as one."""
    return SequenceLosses(
        sums=torch.cat([part.sums for part in parts]), counts=torch.cat([part.counts for part in parts])
    )


def sequence_losses(
    model: Model,
    input_ids: Int[Tensor, "batch token"],
    attention_mask: Int[Tensor, "batch token"] | None = None,
    labels: Int[Tensor, "batch step"] | None = None,
    decoder_input_ids: Int[Tensor, "batch step"] | None = None,
) -> SequenceLosses:
    r"""Sum of the cross-entropy of the scored tokens of each sentence, in nats.

    $$ L_b = -\sum_{t:\, y_{bt} \ne -100} \log p(y_{bt} \mid \text{input}) $$

    | task | scored by default | `labels` |
    |---|---|---|
    | causal-lm | every real token but the first, from those before it | scored tokens, unshifted |
    | masked-lm | pseudo-likelihood: every real, non-special token, masked alone (needs a tokenizer) | as masked |
    | seq2seq | nothing: `labels` are required | target tokens; the decoder's input is these shifted right |

    Raises:
        UserError: The model has no language-model head, or labels or a mask token are missing.

    Source: pseudo-likelihood [@salazar2020].
    """
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    with torch.no_grad():
        if model.task == "causal-lm":
            labels = input_ids.masked_fill(mask == 0, IGNORED) if labels is None else labels
            logits_BTV = forward_logits(model, model_inputs(model, input_ids, mask))
            # The first token after left padding has no context: like the first column, it is not scored.
            return token_cross_entropy(logits_BTV[:, :-1], labels[:, 1:].masked_fill(mask[:, :-1] == 0, IGNORED))
        if model.task == "masked-lm":
            if labels is None:
                return _pseudo_losses(model, input_ids, mask)
            return token_cross_entropy(forward_logits(model, model_inputs(model, input_ids, mask)), labels)
        if model.task == "seq2seq":
            if labels is None:
                raise UserError(f"{model.name} is scored on target sentences. Pass labels, or a parallel corpus.")
            shifted = shift_right(model, labels) if decoder_input_ids is None else decoder_input_ids
            return token_cross_entropy(forward_logits(model, model_inputs(model, input_ids, mask, shifted)), labels)
    raise UserError(f"{model.name} has no language-model head, so it predicts no token and has no task score.")


def token_cross_entropy(
    logits: Float[Tensor, "batch step vocabulary"], labels: Int[Tensor, "batch step"]
) -> SequenceLosses:
    """Cross-entropy per row whose label is not -100; the softmax runs in float32 or wider."""
    labels = labels.to(logits.device)
    rows, steps = (labels != IGNORED).nonzero(as_tuple=True)
    scored = logits[rows, steps]
    if len(rows) and int(labels.max()) >= logits.shape[-1]:
        raise UserError(
            f"Scored tokens must be among the {logits.shape[-1]} that the model predicts. Got the id "
            f"{int(labels.max())}. Leave it out, or mark it with -100."
        )
    scored = scored.to(torch.promote_types(scored.dtype, torch.float32))
    losses = torch.nn.functional.cross_entropy(scored, labels[rows, steps], reduction="none")
    sums = losses.new_zeros(len(labels)).index_add(0, rows, losses)
    return SequenceLosses(sums=sums.cpu(), counts=(labels != IGNORED).sum(dim=1).cpu())


def shift_right(model: Model, labels: Int[Tensor, "batch step"]) -> Int[Tensor, "batch step"]:
    """Decoder input for target `labels`, shifted as in the family: the start token, then all but the last.

    mBART instead starts with the language code that ends the target. -100 becomes padding.
    """
    if (own := getattr(model.module, "prepare_decoder_input_ids_from_labels", None)) is not None:
        with suppress(
            TypeError, ValueError, AttributeError
        ):  # its configuration has no start or no padding: ours searches further
            return own(labels)
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = start_token_id(model)
    return shifted.masked_fill(shifted == IGNORED, model.pad_token_id)


def decoder_inputs(
    model: Model, target_ids: Int[Tensor, "batch token"]
) -> tuple[Int[Tensor, "batch step"], Int[Tensor, "batch step"]]:
    """The decoder's input and target, from targets as encoded by their tokenizer.

    A target that begins with the decoder's start token ([CLS] of a matched model) uses it as the start, so it is one
    step shorter; any other target is predicted in full.
    """
    inputs = shift_right(model, target_ids)
    if target_ids.shape[1] > 1 and bool((inputs[:, 0] == target_ids[:, 0]).all()):
        return target_ids[:, :-1], target_ids[:, 1:]
    return inputs, target_ids


def start_token_id(model: Model) -> int:
    """The token that begins a decoder's input."""
    config = model.module.config
    sources = (config, getattr(model.module, "generation_config", None), getattr(config, "decoder", None))
    # BOS is the last resort: BART's configuration has one, but its decoder starts with EOS.
    for name in ("decoder_start_token_id", "bos_token_id"):
        for source in sources:
            if (token := getattr(source, name, None)) is not None:
                return int(token)
    raise UserError(
        f"{model.name} does not define the first token of its decoder. Set decoder_start_token_id in its configuration."
    )


def _pseudo_losses(model: Model, ids_BT: Tensor, mask_BT: Tensor) -> SequenceLosses:
    tokenizer = model.require_tokenizer()
    if tokenizer.mask_token_id is None:
        raise UserError(f"The tokenizer of {model.name} has no mask token: pass labels and masked input instead.")
    special = torch.isin(ids_BT, torch.tensor(tokenizer.all_special_ids))
    scored = (mask_BT != 0) & ~special
    parts = []
    for ids_T, mask_T, scored_T in zip(ids_BT, mask_BT, scored, strict=True):
        positions = scored_T.nonzero().flatten()
        masked = ids_T.repeat(len(positions), 1)
        labels = torch.full_like(masked, IGNORED)
        rows = torch.arange(len(positions))
        labels[rows, positions] = ids_T[positions]
        masked[rows, positions] = tokenizer.mask_token_id
        losses = torch.zeros(0)
        if len(positions):
            inputs = model_inputs(model, masked, mask_T.repeat(len(positions), 1))
            losses = token_cross_entropy(forward_logits(model, inputs), labels).sums
        parts.append(SequenceLosses(sums=losses.sum()[None], counts=torch.tensor([len(positions)])))
    return concatenate_losses(parts)


def forward_logits(model: Model, inputs: dict) -> Tensor:
    """Logits of a pass over `inputs`: one row over the vocabulary per position."""
    output = model.module(**inputs)
    # Models for pretraining predict sentence order too and name their token logits differently.
    return output.logits if "logits" in output else output.prediction_logits
