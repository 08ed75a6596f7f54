"""Descriptions of a curve over training: its start and end, and when it was halfway."""

import pandas as pd

from ._numbers import number


def ends_words(curve: pd.Series, unit: str = "", places: int | None = None) -> str:
    """`from 9.1 to 4.2 nats`: the first and the last value of a curve."""
    suffix = f" {unit}" if unit else ""
    return f"from {number(curve.iloc[0], places)} to {number(curve.iloc[-1], places)}{suffix}"


def half_by(curve: pd.Series) -> int:
    """The first update (of the index) at which a curve is halfway from its first to its last value."""
    past = _past(curve)
    return int(curve.index[int(past.to_numpy().argmax())])


def half_for_good(curve: pd.Series) -> int:
    """The first update from which a curve stays beyond the midpoint of its ends."""
    past = _past(curve)
    before = past.index[~past.to_numpy(dtype=bool)]
    return int(past.index[past.index.get_loc(before[-1]) + 1]) if len(before) else int(past.index[0])


def _past(curve: pd.Series) -> pd.Series:
    start, end = float(curve.iloc[0]), float(curve.iloc[-1])
    return (curve - (start + end) / 2) * (end - start) >= 0
