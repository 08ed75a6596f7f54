"""Inputs of a forward pass, padded without effect on real tokens, and the loss, in nats per token."""

# B batch, T token, V vocabulary

import inspect
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from infoflow.foundation import UserError

from ._first_pass import tiny_inputs
from ._model import Model
from ._tap import tap

LeftPadding = Literal["as is", "positions", "refused"]


def pad_rows(
    rows: Sequence[Sequence[int] | Integer[Any, " _"]], pad_token_id: int, side: Literal["left", "right"] = "right"
) -> tuple[Int[Tensor, "batch token"], Int[Tensor, "batch token"]]:
    """Pad rows of unequal length on one side; returns token ids and attention mask."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad_token_id)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        ids[index, place] = torch.as_tensor(row, dtype=ids.dtype)
        mask[index, place] = 1
    return ids, mask


def model_inputs(
    model: Model,
    input_ids: Int[Tensor, "batch token"],
    attention_mask: Int[Tensor, "batch token"] | None = None,
    decoder_input_ids: Int[Tensor, "batch step"] | None = None,
    decoder_attention_mask: Int[Tensor, "batch step"] | None = None,
) -> dict[str, Any]:
    """Arguments for `model.module(...)`, on its device, such that padding does not affect real tokens.

    Rows with left padding get position ids that count real tokens if the family would otherwise count the padding.

    Raises:
        UserError: A sequence-to-sequence model lacks decoder input; a family without position ids has left padding
            (BART, mBART, Marian); there is padding although it changes the result (MobileBERT); a decoder is padded on
            the left; a row is empty; or there are more tokens than the model has positions.
    """
    attention_mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    if not bool(attention_mask.any(dim=1).all()):
        raise UserError("Every row needs at least one unmasked token. Got a row whose attention mask is all zero.")
    _check_length(model, input_ids, model.max_tokens)
    if not model.pads and not bool(attention_mask.all()):
        raise UserError(
            f"Padding changes the results of {model.name} for a sentence despite the attention mask. Use "
            "rows of one length, or one row at a time."
        )
    inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
    if _padded_left(attention_mask):
        support = left_padding(model)
        if support == "refused":
            raise UserError(
                f"{model.name} counts its positions from the first column, padding included, and takes no position "
                "ids, so padding on the left would change its results. Pad on the right."
            )
        if support == "positions":
            inputs["position_ids"] = _count_positions(attention_mask)
    if len(model.anatomy.stacks) > 1:
        inputs |= _decoder_inputs(model, decoder_input_ids, decoder_attention_mask)
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    return inputs | without_cache(model.module)


def left_padding(model: Model) -> LeftPadding:
    """How a model handles left padding, determined by a test.

    "as is": real tokens have the same states as without padding (relative positions, or positions counted from the
    mask); "positions": they do if position ids are passed; "refused": impossible.
    """
    if model.module not in _LEFT_PADDING:
        _LEFT_PADDING[model.module] = _try_left_padding(model)
    return _LEFT_PADDING[model.module]


_LEFT_PADDING: WeakKeyDictionary[nn.Module, LeftPadding] = WeakKeyDictionary()


def _try_left_padding(model: Model) -> LeftPadding:
    alone = tiny_inputs(model.module)
    padded = dict(alone)
    padding = torch.full_like(alone["input_ids"][:, :2], model.pad_token_id)
    padded["input_ids"] = torch.cat([padding, alone["input_ids"]], dim=1)
    padded["attention_mask"] = torch.cat([torch.zeros_like(padding), alone["attention_mask"]], dim=1)
    expected = _last_states(model, alone)
    if _close(_last_states(model, padded)[:, 2:], expected):
        return "as is"
    positions = {"position_ids": _count_positions(padded["attention_mask"])}
    try:
        positioned = _last_states(model, padded | positions)
    except TypeError:  # the forward pass has no such argument
        return "refused"
    return "positions" if _close(positioned[:, 2:], expected) else "refused"


def _last_states(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    stack = model.anatomy.reads.name
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**inputs)
    return seen.hidden[stack][-1]


def _close(states: Tensor, expected: Tensor) -> bool:
    return bool((states - expected).norm() <= 1e-3 * expected.norm())


def _decoder_inputs(model: Model, ids: Tensor | None, mask: Tensor | None) -> dict[str, Tensor]:
    if ids is None:
        raise UserError(
            f"{model.name} is an encoder-decoder and needs decoder input: the target sentence, shifted "
            "right. Pass decoder_input_ids, or a parallel corpus."
        )
    _check_length(model, ids, model.max_target_tokens)
    if mask is None:
        return {"decoder_input_ids": ids}
    if _padded_left(mask):
        raise UserError("Decoder input must be padded on the right. Got rows that start with padding.")
    return {"decoder_input_ids": ids, "decoder_attention_mask": mask}


def _check_length(model: Model, ids: Tensor, longest: int | None) -> None:
    if longest is not None and ids.shape[1] > longest:
        raise UserError(
            f"{model.name} takes at most {longest} tokens, special ones included. Got {ids.shape[1]}. Cut longer "
            f"sentences: encode them with max_length={longest}."
        )


def _padded_left(mask: Tensor) -> bool:
    return not bool(mask[:, 0].all())


def _count_positions(mask: Tensor) -> Tensor:
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)


def accepts(module: nn.Module, keyword: str) -> bool:
    """Whether the forward pass accepts the argument, by name or in **kwargs."""
    parameters = inspect.signature(module.forward).parameters
    return keyword in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def without_cache(module: nn.Module) -> dict[str, bool]:
    """The argument that disables a decoder's key-value cache, if it has one."""
    named = "use_cache" in inspect.signature(module.forward).parameters
    text = getattr(module, "config", None)
    text = text.get_text_config() if text is not None and text.sub_configs else text
    # A model of text and images passes it on to its language model.
    handed_on = accepts(module, "use_cache") and hasattr(text, "use_cache")
    return {"use_cache": False} if named or handed_on else {}


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
    | masked-lm | pseudo-likelihood: every real, non-special token, masked alone (needs a tokenizer) | scored tokens |
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
        # It fails without a start or padding token in the configuration; the code below then finds one elsewhere.
        with suppress(TypeError, ValueError, AttributeError):
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
