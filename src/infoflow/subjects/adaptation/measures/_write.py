"""Generates the most probable text after each source, greedily or by beam search."""

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
    """Settings of the search."""

    beams: int
    """Number of beams; 1: greedy."""
    length_penalty: float
    """Length penalty: exponent of the length that divides a text's log-probability; for beams only."""
    most: int
    """Maximum number of tokens of a text, its end included."""
    two_sided: bool
    """Whether a single stack reads the source bidirectionally."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Written:
    """The texts that a model generated for some sources of a part."""

    rows: np.ndarray
    """int64 (example,)."""
    sources: Int[Tensor, "example token"]
    mask: Int[Tensor, "example token"]
    ids: list[list[int]]
    """For each example the tokens after the start, up to and including the end if it was reached."""


def write(module: PreTrainedModel, rows: GenerationRows, search: Search, batch_tokens: int) -> list[Written]:
    """The texts that `module`, in evaluation mode, generates for every source.

    An encoder's sources are padded. A single stack gets batches of sources of equal length: left padding would shift
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
    """Settings of `generate` after `read` tokens of input to the writing stack.

    A pretrained model's settings for its own task (longer summaries) are ignored. The last generated token is not read.
    """
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
    """Keys and values of all source tokens but the last, computed with bidirectional attention.

    `generate` reads the last token again: it comes after all others and sees them in any case.
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
