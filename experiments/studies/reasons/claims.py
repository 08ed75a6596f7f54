"""What claims say of states that are read in other ways: seed by seed, with an interval over the seeds.

    python experiments/studies/reasons/claims.py

Reads `states.csv` and `spaces.csv`. Writes `states_by_claim.csv`: each claim's condition, how the states were read, its
effect with a 95 % interval (Student's t over seeds), what is needed, and whether the interval lies on that side. Where
a condition asks for every layer, the one that is nearest to failing on average is taken, in all seeds.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from infoflow.foundation import atomic_write, interval_over_seeds

HERE = Path(__file__).parent
PAIRS = ("causal-lm–masked-lm", "causal-lm–translation", "masked-lm–translation")
SIMILARITIES = ("raw", "unbiased", "standardised", "unplaced", "unplaced, standardised")
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
MORE_ALIKE = "translation's embeddings over the masked LM's"
Effects = np.ndarray  # of each seed
Condition = tuple[str, str, str, Effects, str, float]  # claim, condition, how states are read, effects, side, threshold


class Curves:
    """Values of a measure by seed and layer."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    def __call__(self, objective: str, measure: str, states: str, detail: str = "") -> np.ndarray:
        """(seed, layer)"""
        keys = {"objective": objective, "measure": measure, "states": states, "detail": detail}
        kept = self.table[(self.table[list(keys)] == pd.Series(keys)).all(axis=1)]
        return kept.pivot_table(index="seed", columns="layer", values="value").to_numpy()


def least(effects: np.ndarray) -> Effects:
    """At the layer (the last axis) with the least mean over seeds."""
    return effects[:, effects.mean(axis=0).argmin()]


def with_depth(values: np.ndarray) -> Effects:
    """Each seed's rank correlation with depth, the last layer aside."""
    depth = np.arange(values.shape[1] - 1)
    return np.array([stats.spearmanr(depth, row[:-1]).statistic for row in values])


def with_layers(one: np.ndarray, other: np.ndarray) -> Effects:
    """Each seed's rank correlation of two measures over layers."""
    return np.array([stats.spearmanr(*pair).statistic for pair in zip(one, other, strict=True)])


def conditions(curves: Curves) -> Iterator[Condition]:
    for clusters in (200, 1000, 4000):
        for states in ("raw", "unplaced"):
            yield from _of_information(curves, states, clusters)
    for states in ("raw", "unplaced"):
        yield from _of_spaces(curves, states)
    for length in ("up to 6", "7 to 10", "11 and more"):
        yield from _of_position(curves, length)
    for states in ("raw", "unplaced"):
        for detail in ("10 neighbours", "50 neighbours"):
            left = curves("causal-lm", "left", states, detail)
            fall = left[:, 2] - left[:, -1]
            yield "V-15", "causal LM: fall of the left token", f"{states}, {detail}", fall, ">", 0.03
    for states in SIMILARITIES:
        yield from _of_similarity(curves, states)
    translation, masked = (curves(name, "average_similarity", "words")[:, 0] for name in ("translation", "masked-lm"))
    yield "Z-5", MORE_ALIKE, "words", translation - masked, ">", 0.05


def _of_information(curves: Curves, states: str, clusters: int) -> Iterator[Condition]:
    read, detail = f"{states}, {clusters:,} clusters", f"{clusters} clusters"
    known = {name: curves(name, "information", states, detail) for name in OBJECTIVES}
    masked = known["masked-lm"]
    yield "V-1", "causal LM: fall at every layer", read, least(-np.diff(known["causal-lm"])), ">", 0
    yield "V-2", "translation: fall at every layer", read, least(-np.diff(known["translation"])), ">", 0
    lowest = 1 + masked[:, 1:-1].mean(axis=0).argmin()
    yield "V-3", "masked LM: fall to its lowest layer", read, masked[:, 0] - masked[:, lowest], ">", 0
    yield "V-3", "masked LM: rise from there", read, masked[:, -1] - masked[:, lowest], ">", 0.04
    for name, information in known.items():
        agreement = with_layers(curves(name, "identity", states)[:, 1:], information[:, 1:])
        yield "V-17", f"{name}: agreement over layers", read, agreement, ">", 0.8


def _of_spaces(curves: Curves, states: str) -> Iterator[Condition]:
    pairs = [curves(pair, "apart", states)[:, 1:] for pair in PAIRS]
    in_all = np.hstack([apart[:, -1:] - apart[:, :1] for apart in pairs])
    yield "V-8", "growth from layer 1 to the top", states, least(in_all), ">", 0.03
    yield "V-8", "growth at every layer", states, least(np.hstack([np.diff(apart) for apart in pairs])), ">", 0
    masked, translation = (curves(name, "change", states)[:, 1:] for name in ("masked-lm", "translation"))
    yield "V-9", "masked LM: last over earlier changes", states, least(masked[:, -1:] / masked[:, :-1]), ">", 1.1
    yield "V-9", "translation: last over first change", states, translation[:, -1] / translation[:, 0], "<", 1 / 1.1


def _of_position(curves: Curves, length: str) -> Iterator[Condition]:
    lost = {name: curves(name, "position", "raw", length)[:, 1:] for name in OBJECTIVES}
    gaps = np.hstack([lost[name] - lost["translation"] for name in ("causal-lm", "masked-lm")])
    yield "V-14", "beyond translation, every layer", f"{length} words", least(gaps), ">", 0.3
    rises = np.hstack([np.diff(one) for one in lost.values()])
    yield "V-14", "rise at every layer", f"{length} words", least(rises), ">", 0


def _of_similarity(curves: Curves, states: str) -> Iterator[Condition]:
    masked, translation = (curves(name, "average_similarity", states) for name in ("masked-lm", "translation"))
    yield "Z-1", "masked LM: growth with depth", states, with_depth(masked), ">", 0.8
    yield "Z-1", "masked LM: fall at the last layer", states, masked[:, -2] - masked[:, -1], ">", 0.05
    own = curves("masked-lm", "self_similarity", states)
    yield "Z-2", "masked LM: order", states, with_depth(own), "<", -0.8
    yield "Z-2", "masked LM: fall to the last layer but one", states, own[:, 0] - own[:, -2], ">", 0.05
    yield "Z-5", MORE_ALIKE, states, translation[:, 0] - masked[:, 0], ">", 0.05
    rises = np.diff(translation)
    over = rises[:, -1:] - 1.5 * np.hstack([0 * rises[:, :1], rises[:, :-1]])
    yield "Z-6", "translation: last rise over earlier ones", states, least(over), ">", 0


def judged(effects: Effects, side: str, threshold: float) -> dict[str, float | str]:
    num = len(effects)
    low, high = interval_over_seeds([(seed,) for seed in range(num)], effects)
    within = (low > threshold, high <= threshold) if side == ">" else (high < threshold, low >= threshold)
    verdict = "holds" if within[0] else "fails" if within[1] else "undetermined"
    return {
        "effect": effects.mean(),
        "low": low,
        "high": high,
        "needed": f"{side} {threshold:g}",
        "verdict": verdict,
        "seeds": num,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=Path, nargs="+", default=[HERE / "states.csv", HERE / "spaces.csv"])
    parser.add_argument("--results", type=Path, default=HERE / "states_by_claim.csv")
    options = parser.parse_args()
    curves = Curves(pd.concat(pd.read_csv(path, keep_default_na=False) for path in options.read))
    rows = [
        {"claim": claim, "condition": condition, "read": read, **judged(effects, side, threshold)}
        for claim, condition, read, effects, side, threshold in conditions(curves)
    ]
    table = pd.DataFrame(rows).sort_values(["claim", "condition"], kind="stable")
    with atomic_write(options.results) as temporary:
        table.to_csv(temporary, index=False, float_format="%.4g")
    print(table.to_string(index=False, float_format="%.3g"))


if __name__ == "__main__":
    main()
