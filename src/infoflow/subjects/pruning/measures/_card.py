"""README.md of a pruned model's folder: description, loading instructions, and cost."""

import pandas as pd

from infoflow.models import Model

_LOAD_PRUNED = """```python
from infoflow.models import load_model

model = load_model("{folder}")  # its .module is the transformers model, its .tokenizer the tokenizer
```

Plain `transformers` cannot build a model whose layers have different numbers of heads, so `from_pretrained` finds no
`model.safetensors` here. A copy that it can load sets the removed heads to zero (original size, same
scores): `infoflow prune {model} … --masked FOLDER`.
"""
_LOAD_MASKED = """```python
from transformers import {family}

model = {family}.from_pretrained("{folder}")
```

The removed heads are zeros in the output projections: scores equal those of the smaller model, size and
speed those of the original.
"""


def model_card(
    model: Model, folder: str, by: str, heads: tuple[int, int, int], quality: pd.DataFrame, masked: bool = False
) -> str:
    """The card's text.

    Args:
        model: The model before pruning.
        folder: Name of the card's folder.
        by: Ranking of the heads.
        heads: Number after pruning, before, and of those that could be removed.
        quality: See `Pruned`.
        masked: Whether the folder holds the copy with zeros.
    """
    rows = [f"| {r['metric']} | {r['before']:.4f} | {r['after']:.4f} | {_change(r)} | {r['sentences']:,} |"
            for r in quality.to_dict("records")]  # fmt: skip
    load = _LOAD_MASKED if masked else _LOAD_PRUNED
    told = load.format(folder=folder, model=model.name, family=type(model.module).__name__)
    left, total, can_go = heads
    return "\n".join(
        [
            f"# {model.name} with {left} of {total} attention heads",
            "",
            f"Made by `infoflow prune` from {model.name}: heads were ranked by {by}, and the last "
            f"{total - left} of the "
            f"{can_go} removable ones were removed, without further training.",
            "",
            "## Load it",
            "",
            told,
            "## Scores",
            "",
            "On sentences that were not used for ranking; the interval resamples sentences.",
            "",
            "| metric | before | after | change [95% interval] | sentences |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _change(row: dict) -> str:
    return f"{row['change']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
