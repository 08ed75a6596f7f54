"""Hollow marks: what was measured under one seed, so that its interval covers the choice of sentences alone."""

from typing import Any

import pandas as pd

HOLLOW = "hence the hollow marks"
"""Ends a sentence about such intervals; that there is one seed, the first screen says once."""


def point_style(rows: pd.DataFrame) -> dict[str, Any]:
    """Of the points of `rows`, which may say how many seeds are behind them."""
    if len(rows) and "seeds" in rows and int(rows["seeds"].max()) < 2:
        return {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6, "opacity": 1}
    return {"filled": True, "opacity": 1}
