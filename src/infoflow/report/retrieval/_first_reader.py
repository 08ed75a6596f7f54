"""What readers began with, in a sentence: random weights are not told of."""

from collections.abc import Mapping

import pandas as pd

from .._numbers import number
from ._rows import every_exposure, plain_arms


def came_able_to_read(frames: Mapping[str, pd.DataFrame]) -> str:
    """How long readers had learned to read before, and how well they read this world then; "" where they had not."""
    scores = frames.get("retrieval_scores")
    if scores is None or (told := scores[scores["metric"] == "read_updates"]).empty:
        return ""
    before = f"learned to read right passages of another world before, in {number(told['value'].max(), 0)} updates"
    right, which = _right(frames.get("knowledge")), "of this world's held-out questions with the right passage"
    reads = "" if right is None else f", and answered {number(right, 2)} {which}"
    return f"Their first reader {before}{reads}; it is what “untrained” means here."


def _right(knowledge: pd.DataFrame | None) -> float | None:
    """Right answers before training about facts held out, with the right passage."""
    if knowledge is None:
        return None
    own = every_exposure(plain_arms(knowledge[~knowledge["trained"]]))
    where = {
        "facts": "held out",
        "document": "gold",
        "reading": "raw",
        "index": "as-trained",
        "layer": -1,
        "metric": "p1",
    }
    for column, wanted in where.items():
        own = own[own[column] == wanted]
    return float(own["value"].mean()) if len(own) else None
