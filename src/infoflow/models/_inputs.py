"""Token ids as arguments of a model's forward pass, padded on either side without affecting real tokens."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int, Integer
from torch import Tensor, nn

from infoflow.foundation import UserError

from ._first_pass import tiny_inputs
from ._model import Model
from ._tap import tap

LeftPadding = Literal["as is", "positions", "refused"]


def pad_rows(
    rows: Sequence[Sequence[int] | Integer[Any, " token"]], pad_token_id: int, side: Literal["left", "right"] = "right"
) -> tuple[Int[Tensor, "batch token"], Int[Tensor, "batch token"]]:
    """Token ids and attention mask of rows of unequal length."""
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

    "as is": the states of real tokens are those of the row alone (relative positions, or positions counted from the
    mask); "positions": the same with position ids; "refused": impossible.
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
        told = _last_states(model, padded | positions)
    except TypeError:  # the forward pass has no such argument
        return "refused"
    return "positions" if _close(told[:, 2:], expected) else "refused"


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
