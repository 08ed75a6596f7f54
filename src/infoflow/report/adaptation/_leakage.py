"""A warning where test texts of tasks stand in what models were trained on."""

import pandas as pd

_WITHIN = {
    "pretraining": "the pretraining corpus",
    "domain": "the domain's corpus",
    "train": "the task's own training part",
}


def leaks(frame: pd.DataFrame) -> list[str]:
    """A sentence for each task and corpus with test texts in common; none where nothing leaks."""
    own = frame[(frame["same"] > 0) | (frame["near"] > 0)].drop_duplicates(["task", "within"])
    return [_sentence(row) for row in own.to_dict("records")]


def _sentence(row: dict) -> str:
    same, near, texts = (int(row[name]) for name in ("same", "near", "texts"))
    where = _WITHIN.get(str(row["within"]), str(row["within"]))
    apart = near - same  # what is equal counts as near too
    parts = [f"{same:,} stand in {where}"] if same else []
    parts += [f"{apart:,} {'more ' if same else ''}are one word apart from a text of {where}"] if apart else []
    return f"{row['task']}: of {texts:,} test texts {' and '.join(parts)}."
