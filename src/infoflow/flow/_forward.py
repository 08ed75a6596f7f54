"""Forward passes without the output head, checks of their states, and how much attention is in memory at a time."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import FastLinear, Model

from ._measure import PassOptions
from ._sample import PaddedBatch

_NOT_LONG = 512  # tokens: shorter texts are always read whole
_WHOLE = 4  # a text's attention may be this many times `attention_bytes`, so that measures of whole texts can have it
TOO_LONG = "whose whole attention would take too much memory: raise analysis.attention_bytes to include them."
_COPIES = 6  # number of copies of a block of attention that measures hold while they reduce it


def attention_size(heads: int, tokens: int) -> int:
    """Bytes of a text's attention weights in float32 for this number of heads."""
    return 4 * heads * tokens**2


def cut_to_budget(
    batches: Iterable[np.ndarray], longest: Callable[[np.ndarray], int], heads: int, budget: float
) -> list[np.ndarray]:
    """Cut batches of rows so that the attention weights of each fit into `budget` bytes; at least one text is kept.

    `longest` returns the tokens in the longest of some rows; the weights of `heads` heads are held at the same time.
    """
    found = []
    for rows in batches:
        of_text = max(1, attention_size(heads, longest(rows)))  # a pruned model may have no heads
        size = max(1, int(min(budget // of_text, len(rows))))
        found += [rows[start : start + size] for start in range(0, len(rows), size)]
    return found


def num_heads(model: Model) -> int:
    """Number of heads of all attentions in all layers."""
    return sum(attention.num_heads for attention in model.anatomy.attentions())


def read_whole(heads: int, tokens: int, options: PassOptions) -> bool:
    """Whether the attention of all `heads` heads in a text of `tokens` tokens may be in memory at once."""
    return tokens <= _NOT_LONG or attention_size(heads, tokens) <= _WHOLE * options.attention_bytes


def left_out_texts(names: str, model: Model, texts: int, tokens: int) -> str:
    """The note to the user about texts that are not read whole; the shortest of them has `tokens` tokens."""
    leave, noun = "leave" if ", " in names else "leaves", "texts" if texts > 1 else "text"
    return f"{names} of {model.name} {leave} out {texts:,} {noun} of {tokens:,} or more tokens, {TOO_LONG}"


def query_block(model: Model, tokens: int, options: PassOptions) -> int | None:
    """Number of queries whose attention is read at a time in a text of `tokens` tokens; None: all."""
    if read_whole(num_heads(model), tokens, options):
        return None
    heads = [attention.num_heads for attention in model.anatomy.attentions()]
    size = attention_size(sum(heads), tokens)
    if any(attention.own for attention in model.anatomy.attentions()):
        raise UserError(
            f"{model.name} computes attention in its own code, for all tokens at once: {size:,} bytes for a text of "
            f"{tokens:,} tokens. Lower max_length, or raise analysis.attention_bytes to a quarter of that."
        )
    return max(1, options.attention_bytes // (_COPIES * 4 * max(heads) * tokens))


def forward(model: Model, batch: PaddedBatch) -> None:
    """Run the stacks for which the batch has streams, without the output head if possible."""
    streams = batch.streams
    with FastLinear():
        if len(model.anatomy.stacks) > 1:
            source = streams["encoder"]
            arguments = {"input_ids": source.input_ids, "attention_mask": source.real.long()}
            if "decoder" in streams:
                model.module(**arguments, decoder_input_ids=streams["decoder"].input_ids, use_cache=False)
            else:
                model.module.get_encoder()(**arguments)
            return
        (stream,) = streams.values()
        arguments = {"input_ids": stream.input_ids, "attention_mask": stream.real.long()}
        if "decoder" in streams:
            arguments["use_cache"] = False
        model.module.base_model(**arguments)


def check_finite(model: Model, hidden: Mapping[str, Sequence[Tensor]], batch: PaddedBatch) -> None:
    """Raise a UserError that names the layer and sentence where a model's states, as from `tap`, are not finite."""
    for stack, states in hidden.items():
        if bool(torch.isfinite(states[-1].sum())):
            continue
        real = batch.streams[stack].real
        for layer, state in enumerate(states):
            bad = (~torch.isfinite(state)).any(dim=-1) & real.to(state.device)
            if bad.any():
                sentence = batch.lines[int(bad.any(dim=1).nonzero()[0])]
                raise UserError(
                    f"{model.name} has NaN or infinite states in its {stack}, layer {layer}, sentence {sentence}.\n"
                    "Load it in float32, or remove that sentence from the corpus."
                )
