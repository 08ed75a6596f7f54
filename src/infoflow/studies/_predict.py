"""What a model predicts for one text: words for blanks at each layer, a continuation, a translation or a summary."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from infoflow.foundation import UserError, hash64, stream
from infoflow.heads import lens_logits, read_blanks, token_name
from infoflow.models import Model, end_token, forward_logits, leading, model_inputs, translate

from ._external import untrained

TOKENS = 20
"""Default length of a continuation, in tokens."""


def predict_words(model: Model, text: str, *, top: int = 5, control: bool = True, seed: int = 0) -> pd.DataFrame:
    """The most likely words at each layer by the model's own head (logit lens), and those of the untrained model.

    A masked LM fills in each blank (`___` or its mask token) independently of the other blanks. Any other model
    predicts the token that follows the text, or the first token of its translation.

    Args:
        model: A model with a language-model head.
        text: A text, which must contain blanks for a masked LM.
        top: Number of words per layer.
        control: Whether to add the words of the same architecture with random weights.
        seed: Seed of the random weights.

    Returns:
        The token and its probability, in a row for each blank (from 1), layer (0: embeddings), model (trained or not)
        and rank (from 1).

    Raises:
        UserError: The model predicts no words or has no mask, or the text has no blank, is empty or too long.
    """
    read, places = read_blanks(model, text)
    rows = list[dict[str, Any]]()
    for one in (model, untrained(model, seed)) if control else (model,):
        for layer, logits in enumerate(lens_logits(one, read, places)):
            found = logits.float().softmax(-1).topk(min(top, logits.shape[-1]), dim=-1)
            for place, rank in itertools.product(range(len(places)), range(found.values.shape[-1])):
                named = token_name(model, int(found.indices[place, rank]))
                row = {"blank": place + 1, "layer": layer, "trained": one is model, "rank": rank + 1, "token": named}
                rows.append(row | {"probability": float(found.values[place, rank])})
    return pd.DataFrame(rows)


def generate(model: Model, text: str, *, tokens: int | None = None, temperature: float = 0.0, seed: int = 0) -> str:
    """The continuation of a text by a causal LM, or the translation or summary that an encoder–decoder generates.

    Args:
        model: A causal LM or an encoder–decoder, with a tokenizer.
        text: The beginning, or the source.
        tokens: Maximum number of tokens to write. Default: 20, or for an encoder–decoder twice its input plus 10.
        temperature: At 0, always the most likely token (for an encoder–decoder the most likely text, by beam search);
            otherwise tokens are drawn from softmax(logits / temperature).
        seed: Seed of the draws.

    Raises:
        UserError: The model writes no text, or the text is empty or too long.
    """
    if model.task not in ("causal-lm", "seq2seq"):
        raise UserError(
            f"Only causal and sequence-to-sequence models write text. {model.name} is "
            + (
                "a masked LM: give it a text with blanks."
                if model.task == "masked-lm"
                else "an encoder without a head."
            )
        )
    if temperature < 0 or (tokens is not None and tokens < 1):
        raise UserError(f"temperature must be 0 or more, and tokens 1 or more. Got {temperature} and {tokens}.")
    read_blanks(model, text)  # refuses texts that cannot be read
    if model.task == "seq2seq":
        sampled = {"beams": 1, "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash64("generate", seed))
            return translate(model, [text], longest=tokens, **(sampled if temperature else {}))[0]
    tokenizer = model.require_tokenizer()
    given = [*leading(tokenizer), *tokenizer(text, add_special_tokens=False)["input_ids"]]
    room = TOKENS if tokens is None else tokens
    room = room if model.max_tokens is None else min(room, model.max_tokens - len(given))
    written = list(itertools.islice(_next_tokens(model, given, temperature, seed), room))
    before = tokenizer.decode(given, skip_special_tokens=True)
    return tokenizer.decode([*given, *written], skip_special_tokens=True)[len(before) :]


def _next_tokens(model: Model, given: list[int], temperature: float, seed: int) -> Iterator[int]:
    ids, rng, end = list(given), stream("generate", seed), end_token(model)
    ends = {end} if isinstance(end, int) else {*(end or ())}
    while True:
        with torch.no_grad():
            logits = forward_logits(model, model_inputs(model, torch.tensor([ids])))[0, -1].double().cpu()
        if temperature == 0:
            token = int(logits.argmax())
        else:
            total = (logits / temperature).softmax(-1).cumsum(-1).numpy()
            token = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        if token in ends:
            return
        ids.append(token)
        yield token
