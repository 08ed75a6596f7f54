"""Writes the most probable text after each source, greedily or by beam search."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from infoflow.models import pad_rows, without_remarks
from infoflow.objectives import prefix_mask
from infoflow.training import micro_batches

from ._generation_rows import GenerationRows
from ._written_losses import check_positions, has_encoder, positions


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """How texts are looked for."""

    beams: int
    """Texts kept in view; 1: greedily."""
    length_penalty: float
    """Exponent of the length that divides a text's log-probability; of beams."""
    most: int
    """Tokens of a text, its end included."""
    two_sided: bool
    """Whether a stack alone reads the source from both sides."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Written:
    """What a model wrote after some sources of a part."""

    rows: np.ndarray
    """int64 (example,)."""
    sources: Int[Tensor, "example token"]
    mask: Int[Tensor, "example token"]
    ids: list[list[int]]
    """Of each example the tokens after the start, up to the end and with it, if it was reached."""


def write(module: PreTrainedModel, rows: GenerationRows, search: Search, batch_tokens: int) -> list[Written]:
    """What `module`, in evaluation mode, writes after every source.

    An encoder's sources are padded. A stack alone gets sources of one length together: padding before them would move
    positions in some families.
    """
    lengths = rows.source_lengths
    encoder, device = has_encoder(module), next(module.parameters()).device
    groups = [np.arange(len(lengths))] if encoder else [np.flatnonzero(lengths == each) for each in np.unique(lengths)]
    budget = max(batch_tokens // search.beams, 1)
    found = []
    for piece in (piece for group in groups for piece in micro_batches(group, lengths, None, budget)):
        sources, mask = pad_rows([rows.source(int(row)).tolist() for row in piece], rows.pad)
        sources, mask = sources.to(device), mask.to(device)
        inputs: dict[str, Any] = {"input_ids": sources, "attention_mask": mask}
        if search.two_sided and not encoder:
            inputs["past_key_values"] = _seen_from_both_sides(module, sources, search.beams)
        read = 1 if encoder else sources.shape[1]
        with without_remarks():
            output = module.generate(**inputs, generation_config=_config(module, rows, search, read))  # type: ignore[operator]
        ids = [_until(row[read:].tolist(), rows.side.end) for row in output]
        found.append(Written(rows=piece, sources=sources, mask=mask, ids=ids))
    return found


def _config(module: Any, rows: GenerationRows, search: Search, read: int) -> GenerationConfig:
    """Settings of `generate`, after so many tokens that the stack that writes has read; those that a pretrained model
    has for its own task (longer summaries) do not count. The last token that is written is not read."""
    check_positions(module, read)
    limit = positions(module)
    most = search.most if limit is None else min(search.most, limit + 1 - read)
    start = getattr(module.config, "decoder_start_token_id", None)
    return GenerationConfig(
        do_sample=False,
        num_beams=search.beams,
        max_new_tokens=most,
        min_length=0,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
        eos_token_id=rows.side.end,
        pad_token_id=rows.side.pad,
        **({"length_penalty": search.length_penalty, "early_stopping": False} if search.beams > 1 else {}),
        **({} if start is None else {"decoder_start_token_id": start}),
    )


def _seen_from_both_sides(module: Any, sources: Int[Tensor, "example token"], beams: int) -> Any:
    """Keys and values of all tokens of the sources but the last, each of which has seen every other.

    The last token is left to be read again, by `generate`: it comes after all others and sees them in any case.
    """
    count, length = sources.shape
    prefix = torch.full((count,), length, device=sources.device)
    cache = module(input_ids=sources, attention_mask=prefix_mask(prefix, length), use_cache=True).past_key_values
    cache.crop(-1)
    if beams > 1:
        cache.batch_repeat_interleave(beams)
    return cache


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids
