"""How each claim's effect changes with tokens, with width, and over the checkpoints of one run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from infoflow.findings._finding import UNTESTABLE
from infoflow.results import END, Column, TableSchema

from ._scale_slope import (
    FLAT,
    LEAST_SCALES,
    ScalePoint,
    ScaleSlope,
    course_slope,
    num_scales,
    scale_groups,
    scale_slope,
    scale_trend,
)

LATE = 0.1
"""Share of a training run's tokens from which its checkpoints count: earlier ones are unfinished, not small."""
_CLAIM = ["id", "architecture", "condition"]
_DEPTH = ["corpus", "layers", "decoder_layers"]

TRENDS = TableSchema(
    name="trends",
    description="Whether the effect of each condition of a claim grows, is flat or falls with scale: slopes over log10 "
    "of tokens at one width and corpus, over log10 of the width at tokens that differ by less than a quarter, and over "
    "log10 of the tokens of one run's checkpoints.",
    columns=(
        Column("id", "string", "", "group and number of the claim"),
        Column("architecture", "string", "", "family of the blocks of the models"),
        Column("condition", "string", "", "condition of the claim that the effect belongs to"),
        Column("followed", "bool", "", "the claim's condition that decides in most runs"),
        Column("axis", "string", "", "tokens or width (one point per run), or checkpoints (of one run)"),
        Column("corpus", "string", "", "corpus of all points"),
        Column("width", "int64", "units", "width of all points; 0: width is the axis"),
        Column("layers", "int64", "layers", "number of layers in all points"),
        Column("decoder_layers", "int64", "layers", "number of decoder layers in all points"),
        Column("run", "string", "", "run that the checkpoints belong to; empty: each point is a run"),
        Column("points", "int64", "", "number of effects behind the slope"),
        Column("scales", "int64", "", "number of scales that differ by a quarter or more"),
        Column("smallest", "float64", "see axis", "tokens or width of the first scale"),
        Column("largest", "float64", "see axis", "tokens or width of the last scale"),
        Column("slope", "float64", "see unit", "change of the effect per tenfold scale"),
        Column("low", "float64", "see unit", "lower end of the slope's 95% interval"),
        Column("high", "float64", "see unit", "upper end of the slope's 95% interval"),
        Column(
            "flat_within",
            "float64",
            "see unit",
            f"the trend is flat if the slope's interval lies this close to zero: {FLAT} of the distance from the "
            "threshold to the published value, or to the effect where there is none",
        ),
        Column("trend", "string", "", "grows, flat, falls or undetermined"),
        Column("told", "string", "", "the trend in words, with its direction"),
        Column(
            "fit",
            "float64",
            "standard errors",
            "root mean square distance of the points from the line; far above 1: the points do not lie on a line",
        ),
        Column(
            "method",
            "string",
            "",
            "where the interval comes from: intervals (of the runs), residuals (no run has several seeds), "
            "seeds (each seed's own slope over its checkpoints)",
        ),
        Column("unit", "string", "", "unit of the effect; of slopes, per tenfold scale"),
        Column("reason", "string", "", "why the trend is undetermined"),
    ),
)


def trends(found: pd.DataFrame) -> pd.DataFrame:
    """The table `TRENDS`, from `FINDINGS_OVER_SCALE`, with every effect that was tested at two comparable scales.

    Effects at the end of training are one point per run. Checkpoints of one run are not independent points: they are
    never mixed with runs. A seed's checkpoints give one slope, and the interval is over seeds (see `course_slope`).
    """
    tested = found[(found["verdict"] != UNTESTABLE) & found["effect"].notna() & found["tokens"].gt(0)]
    ended = tested[tested["update"] == END]
    rows = [
        *_over(ended, "tokens", [*_CLAIM, *_DEPTH, "width"], _by_runs),
        *_over(_at_one_size(ended), "width", [*_CLAIM, *_DEPTH, "size"], _by_runs),
        *_over(tested[tested["update"] != END], "checkpoints", [*_CLAIM, *_DEPTH, "width", "run"], _by_seeds),
    ]
    order = {
        key: index for index, key in enumerate(dict.fromkeys(zip(found["id"], found["architecture"], strict=True)))
    }
    rows.sort(key=lambda row: (order[row["id"], row["architecture"]], not row["followed"]))
    return TRENDS.conform(pd.DataFrame(rows, columns=pd.Index(TRENDS.column_names)))


def reported_claims(table: pd.DataFrame) -> dict[tuple[str, str], str]:
    """The trend of each claim on each architecture in a few words, from the rows of `TRENDS` that are `followed`.

    The trend over tokens is used if runs decide it, or else that over widths, or else that over checkpoints. If widths
    or corpora disagree, each is named with its trend.
    """
    followed = table[table["followed"]]
    parts = [own for _, own in followed.groupby(["id", "architecture"], sort=False)]
    return {(str(own["id"].iloc[0]), str(own["architecture"].iloc[0])): _trend_text(own) for own in parts}


def _trend_text(own: pd.DataFrame) -> str:
    rated = [own[(own["axis"] == axis) & own["slope"].notna()] for axis in ("tokens", "width", "checkpoints")]
    rows = next((rows for rows in rated if len(rows)), own.head(0))
    if rows.empty:
        return "too few scales"
    axis = str(rows["axis"].iloc[0])
    over = {"tokens": "", "width": " with width", "checkpoints": " over checkpoints"}[axis]
    words = list(dict.fromkeys(rows["told"]))
    if len(words) == 1:
        return f"{words[0]}{over}"
    naming = [name for name in ("width", "corpus", "run", "layers") if len(set(rows[name])) > 1] or ["smallest"]
    each = (f"{' '.join(f'{name} {row[name]}' for name in naming)}: {row['told']}" for row in rows.to_dict("records"))
    return f"{'; '.join(each)}{over}"


_Slope = Callable[[pd.DataFrame, Sequence[float]], ScaleSlope]


def _over(rows: pd.DataFrame, axis: str, keys: list[str], slope: _Slope) -> Iterator[dict[str, Any]]:
    for _, own in rows.groupby(keys, sort=False):
        own = own.sort_values(["tokens", "width", "run"], kind="stable")
        if axis == "checkpoints":
            own = own[own["tokens"] >= LATE * own["tokens"].max()]
        sizes = own["width" if axis == "width" else "tokens"].astype(float).tolist()
        if num_scales(sizes) >= 2:
            yield _row(own, axis, sizes, slope(own, sizes))


def _at_one_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `size`: the rank of each run's tokens among those of its claim, corpus and depth."""
    parts = [
        own.assign(size=scale_groups(own["tokens"].tolist())) for _, own in rows.groupby([*_CLAIM, *_DEPTH], sort=False)
    ]
    return pd.concat(parts) if parts else rows.assign(size=0)


def _by_runs(rows: pd.DataFrame, sizes: Sequence[float]) -> ScaleSlope:
    return scale_slope([_point(row, size) for row, size in zip(rows.to_dict("records"), sizes, strict=True)])


def _point(row: dict[Any, Any], size: float) -> ScalePoint:
    return ScalePoint(
        size=size,
        effect=float(row["effect"]),
        low=float(row["low"]),
        high=float(row["high"]),
        seeds=int(row["seeds"]),
        seed_error=float(row["seed_error"]),
        sentence_error=float(row["sentence_error"]),
    )


def _by_seeds(rows: pd.DataFrame, sizes: Sequence[float]) -> ScaleSlope:
    return course_slope(sizes, [list(map(float, effects)) for effects in rows["effects"]])


def _row(own: pd.DataFrame, axis: str, sizes: Sequence[float], slope: ScaleSlope) -> dict[str, Any]:
    last = own.iloc[-1]
    trend = scale_trend(
        slope,
        effect=float(own["effect"].mean()),
        threshold=float(last["threshold"]),
        above=bool(last["above"]),
        published=float(last["published"]),
    )
    scales = num_scales(sizes)
    few = f"{scales} scales, but {LEAST_SCALES} are needed" if scales < LEAST_SCALES else ""
    return {
        **{name: last[name] for name in [*_CLAIM, *_DEPTH, "followed", "unit"]},
        "axis": axis,
        "width": 0 if axis == "width" else int(last["width"]),
        "run": str(last["run"]) if axis == "checkpoints" else "",
        "points": len(own),
        "scales": scales,
        "smallest": min(sizes),
        "largest": max(sizes),
        "slope": slope.value,
        "low": slope.low,
        "high": slope.high,
        "flat_within": trend.flat_within,
        "trend": trend.word,
        "told": trend.told,
        "fit": slope.fit,
        "method": slope.method,
        "reason": few or trend.reason,
    }
