"""The claims that a run checked, as a data frame displayed as a scorecard."""

import pandas as pd
from markupsafe import Markup

from .._summary import VERDICTS, ScorecardRow, findings_of, verdict_line
from ._markup import folded, grid, paragraphs, shorter


class Findings(pd.DataFrame):
    """One claim per row; selections of it are plain frames."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        told = sorted(findings_of(pd.DataFrame(self), []), key=lambda one: list(VERDICTS).index(one.verdict))
        decided = [one for one in told if one.verdict != "not testable here"]
        rest = [one for one in told if one.verdict == "not testable here"]
        parts = [paragraphs(verdict_line(told)), grid(_HEADER, map(_row, decided)) if decided else ""]
        if rest:
            title = f"{len(rest)} that cannot be tested here, and why"
            rows = [(one.id, one.claim, shorter(one.reason, 200)) for one in rest]
            body = grid(("claim", "what it says", "why not"), rows)
            parts.append(folded(title, body))
        return str(Markup("").join(parts))

    def __repr__(self) -> str:
        counts = self.drop_duplicates("id")["verdict"].value_counts() if "verdict" in self else {}
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts)
        return f"Findings: {told or 'none'}\nColumns: {', '.join(map(str, self.columns[:8]))}, …"


_HEADER = ("", "claim", "what it says", "here", "95% interval", "published")


def _row(one: ScorecardRow) -> tuple[str, ...]:
    unit = f" ({one.unit})" if " " in one.unit else f" {one.unit}"
    here = f"{one.effect}{unit if one.unit else ''}"
    return (f"{one.symbol} {one.verdict}", one.id, one.claim, here, one.interval, one.published)
