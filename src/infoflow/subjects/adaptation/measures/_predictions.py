"""Predictions of a tuned model, and their rows in tables."""

from typing import Any

import numpy as np
from transformers import PreTrainedModel

from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import hash64_array
from infoflow.models import evaluating
from infoflow.training import ExampleRows

from ._task import AbstractTask, Predictions

_BATCH_TOKENS = 8192
_LONGEST = 300  # characters of a text in a table
_TEXTS = ("question", "text", "second")


def predictions_of(
    task: AbstractTask, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary
) -> Predictions:
    """The module's predictions on a part; its mode is restored."""
    with evaluating(module):
        return task.predict(module, rows, corpus, vocabulary, _BATCH_TOKENS)


def answer_rows(task: AbstractTask, predictions: Predictions, corpus: Corpus, most: int) -> list[dict[str, Any]]:
    """TASK_ANSWERS for at most `most` examples, chosen by content: the same ones for every model."""
    hashes = hash64_array(("answers",), corpus.content_ids)
    chosen = np.sort(np.argsort(hashes, kind="stable")[:most])
    if not len(chosen):
        return []
    right = task.right(predictions, corpus)
    part = corpus.select(chosen)
    columns = [list(part.column(name)) for name in _TEXTS if name in part.columns]
    return [
        {
            "example": int(row),
            "text": _shortened(" | ".join(one for one in texts if one)),
            "wanted": _shortened(predictions.wanted[row]),
            "said": _shortened(predictions.said[row]),
            "probability": float(predictions.values[row]),
            "right": bool(right[row]),
        }
        for row, texts in zip(chosen.tolist(), zip(*columns, strict=True), strict=True)
    ]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
