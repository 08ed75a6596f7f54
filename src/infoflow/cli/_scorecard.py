"""The verdicts of a run, as the commands `study` and `findings` show them."""

from typing import TYPE_CHECKING

from ._show import estimate, show, show_table

if TYPE_CHECKING:
    import pandas as pd

_UNTESTABLE = "not testable here"
_VERDICTS = ("holds", "fails", "undetermined", _UNTESTABLE)


def show_scorecard(findings: "pd.DataFrame", *, untestable: bool) -> None:
    """Print one line per claim, those that could not be tested only if asked, and how many verdicts there are.

    Verdicts on further architectures and checkpoints are in the table and in the report: here they are counted.
    """
    findings, elsewhere = _first_models(findings)
    trend = ["trend"] if "trend" in findings else []
    read = ["source_read"] if "source_read" in findings else []  # not in tables of earlier versions
    rows = [
        [
            row["id"],
            row["verdict"],
            estimate(row["effect"], row["low"], row["high"]),
            row["unit"] or "",
            row["covers"] or "",
            *(row[name] or "" for name in (*trend, *read)),
            row["claim"],
        ]
        for row in findings.to_dict("records")
        if untestable or row["verdict"] != _UNTESTABLE
    ]
    if rows:
        show_table(
            [
                "finding",
                "verdict",
                "effect [95% interval]",
                "unit",
                "interval covers",
                *trend,
                *(["source read"] * len(read)),
                "claim",
            ],
            rows,
        )
    if untestable:
        _show_reasons(findings[findings["verdict"] == _UNTESTABLE])
    counts = findings["verdict"].value_counts()
    show(", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in _VERDICTS))
    if elsewhere:
        show(f"{elsewhere} verdicts on other architectures and checkpoints: see the table findings.")


def _first_models(findings: "pd.DataFrame") -> "tuple[pd.DataFrame, int]":
    """The rows of the first architecture at the end of training, and how many others there are."""
    if "architecture" not in findings.columns or findings.empty:  # of an earlier version
        return findings, 0
    first = findings.iloc[0]
    own = (findings["architecture"] == first["architecture"]) & (findings["update"] == first["update"])
    if "model" in findings.columns:  # of a claim on models that were given, the first
        own = (own | (findings["model"] != "")) & ~findings["id"].duplicated()
    return findings[own], int((~own).sum())


def _show_reasons(findings: "pd.DataFrame") -> None:
    """Why claims could not be tested, and what would make them testable: one line per reason."""
    if findings.empty:
        return
    reasons = findings["reason"].str.partition(". ")[0].str.removesuffix(".")
    show("\nNot testable here:")
    for reason, rows in findings.groupby(reasons, sort=False):
        show(f"  {reason}.\n    {', '.join(rows['id'])}")
    show()
