"""Hollow marks: what was measured under one seed, so that its interval covers the choice of sentences alone."""

from typing import Any

import pandas as pd

HOLLOW = "and marks are hollow, since there is one seed"
"""Ends a sentence about such intervals."""


def point_style(rows: pd.DataFrame) -> dict[str, Any]:
    """Of the points of `rows`, which may say how many seeds are behind them."""
    if len(rows) and "seeds" in rows and int(rows["seeds"].max()) < 2:
        return {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6, "opacity": 1}
    return {"filled": True, "opacity": 1}
