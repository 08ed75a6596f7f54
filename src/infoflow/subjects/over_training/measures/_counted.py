"""n-gram models of a model's training text, in its own tokens; counted once per process."""

from collections.abc import Hashable
from typing import Literal

import numpy as np

from infoflow.flow import Reader
from infoflow.models import start_token_id

from ._ngrams import NgramModel

Direction = Literal["before", "after"]
"""Whether a token is predicted from the tokens before or after it."""

_HELD = 6  # count models: checkpoints of one training need the same few
_MODELS: dict[Hashable, NgramModel] = {}


def counted_ngrams(reader: Reader, order: int, size: int, direction: Direction = "before") -> NgramModel:
    """Counts of `Reader.counted` as input of the predicting stack: special tokens are history only.

    A causal LM and a decoder also predict the end of the sentence, a masked LM no special token: the same tokens are
    counted as next tokens. Corpus and tokenizer, and so the counts, are the same for every checkpoint.
    """
    model, stack = reader.model, reader.model.anatomy.predicts.name
    text = reader.counted
    digest = text.digest
    key = (digest, reader.tokenizer_digest(stack), stack, model.task, _start(reader), order, size, direction)
    if key not in _MODELS:
        while len(_MODELS) >= _HELD:
            del _MODELS[next(iter(_MODELS))]
        _MODELS[key] = _counted(reader, order, size, direction)
    return _MODELS[key]


def _counted(reader: Reader, order: int, size: int, direction: Direction) -> NgramModel:
    rows = reader.counted_rows(reader.model.anatomy.predicts.name)
    tokens, special = np.asarray(rows.flat_ids), np.asarray(rows.flat_special)
    offsets, start = np.asarray(rows.offsets), _start(reader)
    if reader.model.task == "masked-lm":
        counted = ~special
    else:
        counted = np.ones(len(tokens), dtype=bool)
        begins = offsets[:-1][np.diff(offsets) > 0]
        counted[begins] = ~special[begins]  # the first token of a sentence is never predicted
        if start is not None and len(begins) and bool((tokens[begins] == start).all()):
            start = None
    if direction == "after":
        tokens, counted, offsets = tokens[::-1], counted[::-1], len(tokens) - offsets[::-1]
    return NgramModel(tokens, offsets, size, order, counted, start)


def _start(reader: Reader) -> int | None:
    """The first token that a decoder reads."""
    return start_token_id(reader.model) if reader.model.task == "seq2seq" else None
