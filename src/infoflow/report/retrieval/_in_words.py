"""What the figures about retrieval show, in words alone: lines whose intervals meet are named together."""

from collections.abc import Mapping

import pandas as pd

from .._numbers import listed


def most_and_least(rows: pd.DataFrame, what: str, most: str = "most", least: str = "least") -> str:
    """Which lines have the largest value and which the smallest; "" where there are fewer than two.

    A line stands with the extreme where their intervals meet; where the extremes' meet, no line is told apart.

    Args:
        rows: One of each line: name, value, low, high; without an interval the value alone counts.
        what: How the sentence begins.
        most: What the largest is called.
        least: What the smallest is called.
    """
    rows = rows.dropna(subset="value")
    if len(rows) < 2:
        return ""
    low, high = rows["low"].fillna(rows["value"]), rows["high"].fillna(rows["value"])
    top, bottom = rows["value"].argmax(), rows["value"].argmin()
    least_of_top, most_of_bottom = float(low.iloc[top]), float(high.iloc[bottom])
    if least_of_top <= most_of_bottom:
        return f"{what} in no line clearly more than in another"
    tops = rows.loc[high >= least_of_top, "name"].tolist()
    bottoms = rows.loc[(low <= most_of_bottom) & ~rows["name"].isin(tops), "name"].tolist()
    return f"{what} {most} in {listed(tops)}, {least} in {listed(bottoms)}"


def by_answer(answers: Mapping[str, str], start: str = "") -> str:
    """Lines with the same answer in one clause: "in A and B it is …; in C …"."""
    groups: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if answer:
            groups.setdefault(answer, []).append(name)
    clauses = [f"{answer} in {listed(names)}" for answer, names in groups.items()]
    return sentence(f"{start}{'; '.join(clauses)}") if clauses else ""


def sentence(text: str) -> str:
    """With a capital and a full stop; "" stays so."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""
