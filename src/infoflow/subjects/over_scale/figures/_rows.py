"""Data of the figure over scale: claims tested at two scales, and the styles of widths and corpora."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from infoflow.report._numbers import listed
from infoflow.report.forms._over_time import layer_shades
from infoflow.report.forms._time_axis import short
from infoflow.results import END

from ..claims._scale_slope import scale_groups

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (5, 3), (2, 2), (8, 2, 2, 2), (1, 3), (10, 4), (4, 1), (6, 2, 1, 2))
_LATE = 0.1  # share of a run's tokens, as in `trends`


def tested_rows(found: pd.DataFrame) -> pd.DataFrame:
    """The followed rows of each claim with effects at two scales: ends of training, and late checkpoints.

    `line` identifies the points that one line joins: runs of one width, depth and corpus, or checkpoints of one run.
    """
    tested = found[found["followed"] & (found["verdict"] != "not testable here")]
    tested = tested[tested["effect"].notna() & tested["tokens"].gt(0)]
    late = tested["tokens"] >= _LATE * tested.groupby("run")["tokens"].transform("max")
    tested = tested[late | (tested["update"] == END)]
    kept = [own for _, own in tested.groupby(["id", "architecture"], sort=False) if _several(own)]
    if not kept:
        return tested.head(0).assign(line="")
    rows = pd.concat(kept).sort_values("tokens", kind="stable").sort_values("id", key=_order(found), kind="stable")
    ended = rows["update"] == END
    shared = rows["corpus"].astype(str) + "/" + rows[["width", "layers", "decoder_layers"]].astype(str).agg("/".join, 1)
    return rows.assign(line=np.where(ended, shared, "checkpoints of " + rows["run"].astype(str)))


def _several(own: pd.DataFrame) -> bool:
    """Whether the runs, or the checkpoints of one run, cover two scales."""
    ended = own[own["update"] == END]
    if len(set(ended["width"])) > 1 or len(set(scale_groups(ended["tokens"].tolist()))) > 1:
        return True
    courses = own[own["update"] != END].groupby("run")["tokens"]
    return any(len(set(scale_groups(tokens.tolist()))) > 1 for _, tokens in courses)


def _order(found: pd.DataFrame):
    places = {id: place for place, id in enumerate(dict.fromkeys(found["id"]))}
    return lambda column: column.map(places)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The scales that all panels share, and their styles."""

    widths: tuple[int, ...]
    corpora: tuple[str, ...]
    tokens: tuple[float, float]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> "Grid":
        """Build the grid; the corpus of most runs comes first."""
        runs = rows.astype({"corpus": str}).groupby("corpus", sort=False)["run"].nunique()
        return cls(
            widths=tuple(sorted({int(width) for width in rows["width"]})),
            corpora=tuple(runs.sort_values(ascending=False, kind="stable").index),
            tokens=(float(rows["tokens"].min()), float(rows["tokens"].max())),
        )

    @property
    def shades(self) -> list[str]:
        return layer_shades(range(len(self.widths)))

    @property
    def legend(self) -> list[dict[str, str]]:
        return [
            {"label": f"width {width}", "color": shade} for width, shade in zip(self.widths, self.shades, strict=True)
        ]

    @property
    def corpora_legend(self) -> list[dict[str, str]]:
        """The mark of each corpus; empty for a single corpus."""
        if len(self.corpora) < 2:
            return []
        return [{"label": name, "shape": SHAPES[place % len(SHAPES)]} for place, name in enumerate(self.corpora)]

    def name_of(self, width: str, corpus: str) -> str:
        """Label of a line, next to its last mark: the width, and the corpus unless it is that of most runs."""
        told = [width] if len(self.widths) > 1 else []
        told += [corpus.split(":")[0]] if corpus != self.corpora[0] or not told else []
        return ", ".join(told)

    @property
    def told(self) -> str:
        widths = f"width{'s' if len(self.widths) > 1 else ''} {listed([str(width) for width in self.widths])}"
        first, last = map(short, self.tokens)
        return f"{widths}; {first} to {last} tokens; {listed(list(self.corpora))}"
