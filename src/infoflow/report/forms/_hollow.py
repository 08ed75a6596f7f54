"""Hollow marks: measured with one seed, so the interval covers only the choice of sentences."""

from typing import Any

import pandas as pd

HOLLOW = "hence the hollow marks"
"""Ends a sentence about such intervals; the front page states once that there is only one seed."""


def point_style(rows: pd.DataFrame) -> dict[str, Any]:
    """Point style of `rows`, from the number of seeds behind each if known."""
    if len(rows) and "seeds" in rows and int(rows["seeds"].max()) < 2:
        return {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6, "opacity": 1}
    return {"filled": True, "opacity": 1}
