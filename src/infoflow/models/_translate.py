"""Translation by beam search."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase
from transformers.utils import logging

from infoflow.corpus import length_batches
from infoflow.foundation import UserError, current_display

from ._losses import pad_rows, start_token_id
from ._model import Model
from ._tokenizers import language_id, reading_of


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
        sentences: Source sentences; they are truncated to the model's longest input.
        beams: Hypotheses kept per sentence.
        length_penalty: Exponent of the length that divides a hypothesis' log-probability.
        max_ratio: Maximum number of output tokens, as a multiple of the sentence's own source tokens, plus 10, so that
            a translation does not depend on its batch.
        token_budget: Source tokens per batch, padding included.
        options: Further arguments of `generate`, such as `forced_bos_token_id` of a multilingual model.

    Raises:
        UserError: The model has no decoder or no tokenizer.
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
    """The decoder's output for each row of encoder tokens, by beam search without sampling.

    Args:
        model: A sequence-to-sequence model with a tokenizer.
        rows: Token ids that the encoder reads, special ones included.
        longest: Maximum number of output tokens.
        beams: Hypotheses kept per row.
        token_budget: Tokens per batch, padding included.

    Returns:
        Texts in the order of the rows, without special tokens.

    Raises:
        UserError: The model has no encoder-decoder, or no tokenizer.
    """
    if model.task != "seq2seq":
        raise UserError(
            f"Generation from an encoder needs a sequence-to-sequence model. {model.name} is a {model.task} model."
        )
    return _written(model, rows, [longest] * len(rows), "Writing", beams=beams, token_budget=token_budget)


def as_model_writes(model: Model, texts: Sequence[str]) -> list[str]:
    """Texts of the model's output language, normalised like its tokenizer's training targets.

    A perfect model can produce no other form: if the tokenizer normalises to NFKC, `℃` becomes `°C`, and if it
    lower-cases, capitals are lost.
    """
    tokenizer = model.target_tokenizer or model.require_tokenizer()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        normalise = backend.normalizer.normalize_str if backend.normalizer is not None else str
    else:  # sentencepiece itself, of the target side if there are two
        pieces = (getattr(tokenizer, name, None) for name in ("spm_target", "sp_model"))
        normalise = next((one.normalize for one in pieces if hasattr(one, "normalize")), str)
    # Some normalisers write the space as sentencepiece does.
    return [" ".join(normalise(text).replace("▁", " ").split()) for text in texts]


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
    """Texts of the rows, each within its own token limit."""
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
            output = _generate(
                model,
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


def _generate(model: Model, **inputs: Any) -> Tensor:
    """The output of `generate`; of SeamlessM4T its text, where the model's own method continues to speech."""
    if str(getattr(model.module.config, "model_type", "")).startswith("seamless_m4t"):
        return GenerationMixin.generate(model.module, **inputs)  # type: ignore[arg-type]
    return model.module.generate(**inputs)


def _tokens(model: Model) -> dict[str, int]:
    """Start, end and padding of the output; if a matched model's configuration has no end, the tokenizer's is used."""
    config, tokenizer = model.module.config, model.target_tokenizer or model.require_tokenizer()
    tokens = {
        "decoder_start_token_id": start_token_id(model),
        "pad_token_id": model.pad_token_id,
        **_language_token(tokenizer),
    }
    candidates = (
        getattr(model.module.generation_config, "eos_token_id", None),
        getattr(config, "eos_token_id", None),
        tokenizer.eos_token_id,
        tokenizer.sep_token_id,
    )
    end = next((token for token in candidates if token is not None), None)
    return tokens if end is None else tokens | {"eos_token_id": end}


def _language_token(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The token of the target language, if known.

    It is the first output token, or, if targets end with it as in mBART, the decoder's start token.
    """
    code = reading_of(tokenizer).target_language
    if not code:
        return {}
    token = language_id(tokenizer, code)
    ends_with_it = tokenizer(text_target="a")["input_ids"][-1] == token
    return {"decoder_start_token_id" if ends_with_it else "forced_bos_token_id": token}


class _EndAt(LogitsProcessor):
    """Ends each hypothesis at its own sentence's limit; `generate` has one limit for the whole batch."""

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
    """Suppresses generation's log messages about intentional settings."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
