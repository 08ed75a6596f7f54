"""The rows of information tables that figures draw, and where clusters limit them."""

import pandas as pd

from infoflow.representations import LIMITED

LIMITED_BY = "limited by its clusters"


def input_rows(frame: pd.DataFrame, regime: str = "clean") -> pd.DataFrame:
    """The input side, on uncorrupted text or in another regime."""
    return frame[(frame["regime"] == regime) & (frame["side"] == "input")]


def output_rows(main: pd.DataFrame) -> pd.DataFrame:
    """The output side; models that mask their input use their training regime, since otherwise output = input."""
    output = main[main["side"] == "output"]
    hidden = set(output.loc[output["regime"] == "training", "series"])
    return output[(output["regime"] == "training") == output["series"].isin(hidden)]


def span(values: pd.Series) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def limited(frame: pd.DataFrame) -> bool:
    """Whether an estimate about the input misses the entropy of its tokens at layer 0, or exceeds its own value there.

    Layer 0 determines its token, so a value that is larger elsewhere cannot be the information itself.
    """
    trained = frame[frame["trained"]]
    start = trained[trained["layer"] == 0].groupby("series").agg(value=("value", "mean"), entropy=("entropy", "mean"))
    most = trained.groupby(["series", "layer"])["value"].mean().groupby("series").max()
    short = start["value"] < (1 - LIMITED) * start["entropy"]
    return bool((short | (most.reindex(start.index) > start["value"])).any())
