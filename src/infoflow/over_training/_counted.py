"""n-gram models of the text that a model was trained on, in its own tokens; counted once in a process."""

from collections.abc import Hashable
from typing import Literal

import numpy as np

from infoflow.flow import Reader
from infoflow.models import start_token_id

from ._ngrams import NgramModel

Direction = Literal["before", "after"]
"""Whether a token is told by those before it or by those after it."""

_HELD = 6  # models of counts: checkpoints of one training ask for the same few
_MODELS: dict[Hashable, NgramModel] = {}


def counted_ngrams(reader: Reader, order: int, size: int, direction: Direction = "before") -> NgramModel:
    """Counts of `Reader.counted` as the predicting stack reads it: special tokens are history.

    A causal LM and a decoder also predict the end of the sentence, a masked LM no special token: that is what counts as
    a next token. The same for every checkpoint, since corpus and tokenizer are.
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
        counted[begins] = ~special[begins]  # nothing predicts what begins every sentence
        if start is not None and len(begins) and bool((tokens[begins] == start).all()):
            start = None
    if direction == "after":
        tokens, counted, offsets = tokens[::-1], counted[::-1], len(tokens) - offsets[::-1]
    return NgramModel(tokens, offsets, size, order, counted, start)


def _start(reader: Reader) -> int | None:
    """The token that a decoder reads before its first."""
    return start_token_id(reader.model) if reader.model.task == "seq2seq" else None
