"""The verdicts of a run, as the commands `study` and `findings` show them."""

from typing import TYPE_CHECKING

from ._show import estimate, show, show_table

if TYPE_CHECKING:
    import pandas as pd

_VERDICTS = ("holds", "fails", "undetermined", "not testable here")


def show_scorecard(findings: "pd.DataFrame") -> None:
    """Print one line per claim, and how many verdicts there are of each kind."""
    rows = [
        [row["id"], row["verdict"], estimate(row["effect"], row["low"], row["high"]), row["unit"] or "", row["claim"]]
        for row in findings.to_dict("records")
    ]
    show_table(["finding", "verdict", "effect [95% interval]", "unit", "claim"], rows)
    counts = findings["verdict"].value_counts()
    show(", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in _VERDICTS))
