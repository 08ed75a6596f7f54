"""Sentences on how a study's corpus was split, and which test sentences its models could have seen."""

from typing import Any

from infoflow.results import RunFolder

_RULES = {
    "near-duplicates": "no two parts share a source, a target, or near duplicates of either (equal words, or one word "
    "substituted, inserted or deleted where both sentences have four words or more)",
    "both-sides": "no two parts share a source or a target",
    "source": "no two parts share a source",
}


def parts_told(run: RunFolder) -> str:
    """Sizes, rule, losses and leaks of the parts; "" if the run has no parts, or predates their counts."""
    manifest = run.read()
    corpus = manifest.get("corpus", {})
    if "leakage" not in (split := corpus.get("split", {})):
        return ""
    sizes = corpus["parts"]
    asked = manifest.get("plan", {}).get("corpus", {}).get("split", split["rule"])
    rule = _RULES.get(split["rule"], "validation and test part were published with it")
    weaker = f" (“{asked}” would have left too little)" if split["rule"] and asked != split["rule"] else ""
    lost = sum(split["left_out"].get("train", {}).values())
    return (
        f"Of the corpus {sizes['train']:,} rows are for training, {sizes['validation']:,} for validation and "
        f"{sizes['test']:,} for the test; {rule}{weaker}. {lost:,} rows were left out of training. "
        f"{_leaks(split['leakage']['test'])}"
    )


def _leaks(leaks: dict[str, Any]) -> str:
    sides = [
        f"{leaks[side]:.1%} of its {side} ({leaks[f'near_{side}']:.1%} with near duplicates)"
        for side in ("sources", "targets")
        if leaks.get(side) is not None
    ]
    return f"What the test part shares with training: {' and '.join(sides)}."
