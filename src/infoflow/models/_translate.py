"""Translation by beam search."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.utils import logging

from infoflow.corpus import length_batches
from infoflow.foundation import UserError, current_display

from ._inputs import pad_rows
from ._losses import start_token_id
from ._model import Model


def translate(
    model: Model,
    sentences: Sequence[str],
    *,
    beams: int = 5,
    length_penalty: float = 1.0,
    max_ratio: float = 2.0,
    token_budget: int = 2048,
    **options: Any,
) -> list[str]:
    """Translations in the order of the sentences, by beam search without sampling.

    Args:
        model: A sequence-to-sequence model with a tokenizer.
        sentences: Source sentences; what exceeds the model's longest input is cut.
        beams: Hypotheses kept per sentence.
        length_penalty: Exponent of the length that divides a hypothesis' log-probability.
        max_ratio: Output tokens at most, as a multiple of the sentence's own source tokens, plus 10, so that a
            translation does not depend on the sentences beside it in a batch.
        token_budget: Source tokens per batch, padding included.
        options: Further keywords of `generate`, such as `forced_bos_token_id` of a multilingual model.

    Raises:
        UserError: The model has no decoder to translate with, or no tokenizer.
    """
    if model.task != "seq2seq":
        raise UserError(f"Only a sequence-to-sequence model translates. {model.name} is a {model.task} model.")
    tokenizer = model.require_tokenizer()
    limit = {} if model.max_tokens is None else {"truncation": True, "max_length": model.max_tokens}
    rows = [tokenizer(sentence, **limit)["input_ids"] for sentence in sentences]
    longest = [int(max_ratio * len(row)) + 10 for row in rows]
    settings = {"length_penalty": length_penalty, **options}
    return _written(model, rows, longest, "Translating", beams=beams, token_budget=token_budget, **settings)


def write_texts(
    model: Model, rows: Sequence[Sequence[int]], longest: int, *, beams: int = 5, token_budget: int = 2048
) -> list[str]:
    """What the decoder writes of each row of the encoder's tokens, by beam search without sampling.

    Args:
        model: A sequence-to-sequence model with a tokenizer.
        rows: Token ids that the encoder reads, special ones included.
        longest: Tokens at most that it writes.
        beams: Hypotheses kept per row.
        token_budget: Tokens per batch, padding included.

    Returns:
        Texts in the order of the rows, without special tokens.

    Raises:
        UserError: The model has no decoder beside an encoder, or no tokenizer.
    """
    if model.task != "seq2seq":
        raise UserError(
            f"Only a sequence-to-sequence model writes after an encoder. {model.name} is a {model.task} model."
        )
    return _written(model, rows, [longest] * len(rows), "Writing", beams=beams, token_budget=token_budget)


def _written(
    model: Model,
    rows: Sequence[Sequence[int]],
    longest: Sequence[int],
    task: str,
    *,
    beams: int,
    token_budget: int,
    **options: Any,
) -> list[str]:
    """Texts of the rows, each of as many tokens as its own limit at most."""
    target_tokenizer = model.target_tokenizer or model.require_tokenizer()
    texts = [""] * len(rows)
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    most = torch.tensor(longest)
    if model.max_target_tokens is not None:
        most = most.clamp(max=model.max_target_tokens - 1)
    settings = {"num_beams": beams, "do_sample": False, **_tokens(model), **options}
    with (
        torch.inference_mode(),
        without_remarks(),
        current_display().progress(task, len(rows), unit="sentences") as bar,
    ):
        for batch in length_batches(lengths, token_budget, max_sentences=None if model.pads else 1):
            ids, mask = pad_rows([rows[row] for row in batch], model.pad_token_id)
            limits = most[torch.as_tensor(batch)].repeat_interleave(beams)
            output = model.module.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=int(limits.max()),
                logits_processor=LogitsProcessorList([_EndAt(limits.to(model.device), settings.get("eos_token_id"))]),
                **settings,
            )
            decoded = target_tokenizer.batch_decode(output, skip_special_tokens=True)
            for row, text in zip(batch, decoded, strict=True):
                texts[row] = text.strip()
            bar.advance(len(batch))
    return texts


def _tokens(model: Model) -> dict[str, int]:
    """Start, end and padding of the output; a matched model's configuration may name no end, its tokenizer does."""
    tokens = {"decoder_start_token_id": start_token_id(model), "pad_token_id": model.pad_token_id}
    config, tokenizer = model.module.config, model.target_tokenizer or model.require_tokenizer()
    candidates = (
        getattr(model.module.generation_config, "eos_token_id", None),
        getattr(config, "eos_token_id", None),
        tokenizer.eos_token_id,
        tokenizer.sep_token_id,
    )
    end = next((token for token in candidates if token is not None), None)
    return tokens if end is None else tokens | {"eos_token_id": end}


class _EndAt(LogitsProcessor):
    """Ends each hypothesis at its own sentence's limit; `generate` itself knows one limit for the whole batch."""

    def __init__(self, limits: Tensor, end: int | list[int] | None) -> None:
        self.limits = limits
        self.end = end[0] if isinstance(end, list) else end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        over = input_ids.shape[1] >= self.limits
        if self.end is None or not bool(over.any()):
            return scores
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end] = 0
        return torch.where(over[:, None], ended, scores)


@contextmanager
def without_remarks() -> Iterator[None]:
    """Generation logs remarks about settings that are given on purpose."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
