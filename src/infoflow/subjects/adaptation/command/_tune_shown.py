"""What `infoflow tune` prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infoflow.cli._show import estimate, show, show_table

from ._tune_arm import Arm

if TYPE_CHECKING:
    import pandas as pd

    from ..measures import Tuned


def show_tuned(tuned: "Mapping[Arm, Tuned]") -> None:
    """Print the scores on test, the mean over seeds, and each seed's main metric."""
    arm, first = next(iter(tuned.items()))
    data = arm.data
    sizes = f"{len(first.train):,} to train, {len(data.dev):,} to choose, {len(data.test):,} to test"
    columns = ["metric", *(["tuned"] if len(tuned) > 1 else []), "test [95% interval]", "baseline", "dev", "rate"]
    metrics = list(dict.fromkeys(first.scores["metric"]))
    rows = [
        [metric, *([arm.label or "model"] if len(tuned) > 1 else []), *_cells(one.scores, metric)]
        for metric in metrics
        for arm, one in tuned.items()
    ]
    num = len(first.models)
    seeds = "one seed" if num == 1 else f"mean over {num} seeds"
    show_table(columns, rows, f"{data.name} ({data.shape}), {seeds}: {sizes}")
    show()
    chosen = first.scores[first.scores["main"]]
    listed = [
        [str(row["tuning_seed"]), row["part"], row["metric"], estimate(row["value"], row["low"], row["high"])]
        for row in chosen.to_dict("records")
    ]
    show_table(["seed", "part", "metric", "value [95% interval]"], listed, "Each seed")
    show()
    _tell_of_guesses(first.scores, arm.config.method)


def tell_of_leakage(leaks: "pd.DataFrame") -> None:
    """Say how many test texts were trained on, the same or nearly so."""
    texts, same, near = (int(leaks[name].iloc[0]) for name in ("texts", "same", "near"))
    stand = "stands" if same == 1 else "stand"
    show(f"{same:,} of {texts:,} test texts also {stand} in training, {near - same:,} more differ by one word.")


def _tell_of_guesses(scores: "pd.DataFrame", method: str) -> None:
    """Say so where the main metric on test is not above what is reached without a model."""
    from infoflow.foundation import bounds_of
    from infoflow.results import scale_of

    longer = "--set tune.head_epochs" if method == "frozen" else "--epochs"
    metric = scores[scores["main"]]["metric"].iloc[0]
    value, low, high, guess = _on_test(scores, metric)
    if low <= guess < bounds_of(scale_of(metric))[1]:  # nothing is better than a guess that is always right
        show(
            f"No better than the best guess without a model: {metric} {estimate(value, low, high)}, the guess "
            f"{guess:.3f}.\nTune longer ({longer}), at other rates (--rates), or on more examples."
        )
        show()


def _cells(scores: "pd.DataFrame", metric: str) -> list[str]:
    value, low, high, guess = _on_test(scores, metric)
    own = scores[scores["metric"] == metric]
    rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(own["learning_rate"]))
    dev = own[own["part"] == "dev"]["value"].mean()
    return [estimate(value, low, high), f"{guess:.3f}", f"{dev:.3f}", rates]


def _on_test(scores: "pd.DataFrame", metric: str) -> tuple[float, float, float, float]:
    """The mean of a metric over seeds, its interval, and the guess that it is compared with."""
    test = scores[(scores["metric"] == metric) & (scores["part"] == "test")]
    return *_over_seeds(test.to_dict("records"), metric), float(test["baseline"].mean())


def _over_seeds(rows: Sequence[dict[str, Any]], metric: str) -> tuple[float, float, float]:
    """The mean of a metric with its interval over seeds and examples; of one seed its own."""
    import numpy as np

    from infoflow.foundation import interval_over_seeds
    from infoflow.results import scale_of

    if len(rows) == 1:
        return rows[0]["value"], rows[0]["low"], rows[0]["high"]
    values = np.array([row["value"] for row in rows])
    replicates = np.array([row["replicates"] for row in rows], dtype=float)
    own = [(row["low"], row["high"]) for row in rows]
    units = [(row["tuning_seed"],) for row in rows]
    ends = interval_over_seeds(units, values, replicates, own, scale_of(metric))
    return float(values.mean()), ends.low, ends.high
