"""What heads do: the layer × head map with a choice of statistics, and whether positional heads are confident."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.heads import ENCODER_CONTEXT, HEAD_CONFIDENCE, HEAD_EXAMPLES, HEAD_POSITIONAL

from .._curves import has_untrained
from .._declared import DeclaredFigure, Drawn, drawn_from, names_of, tables_of
from .._figure import Method, Panel, Section
from .._in_words import Candidate, extreme, plain, sentence
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed, number
from .._samples import Estimate, Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import amount, color_of, finished, shape_of, tips
from ..forms._lines import SHARE, level
from ..forms._scatter import points
from ._context import CONTEXT
from ._map import HEAD_MAP
from ._matter import IMPORTANCE
from ._removed import REMOVED
from ._statistics import HEAD_TABLES

_POSITIONAL_HEADS = Method(
    id="head-positional",
    title="Positional heads",
    text="""
    The share of queries whose strongest key lies at a given offset, among queries that have a key there. A head is
    called positional from 90%. After Voita et al. (2019).
    """,
)

_POINT = 0.03  # width of a point on axes from 0 to 1
_POSITIONAL = 0.90  # Voita et al. 2019: share of queries whose strongest key is at one offset


def _positional_frame(confidence: pd.DataFrame, positional: pd.DataFrame) -> pd.DataFrame:
    """One row per self-attention head: the larger of its shares at offsets −1 and +1, and its confidence."""
    keys = ["series", "model", "seed", "trained", "stack", "kind", "layer", "head"]
    near = positional[(positional["kind"] == "self") & positional["offset"].isin([-1, 1])]
    best = near.dropna(subset="value").sort_values("value").drop_duplicates(keys, keep="last")
    named = {"value": "share", "low": "share_low", "high": "share_high", "baseline": "share_baseline"}
    best = best[[*keys, "offset", *named]].rename(columns=named)
    columns = [*keys, "value", "low", "high", "baseline", "count"]
    return confidence[columns].merge(best, on=keys).rename(columns={"value": "confidence", "baseline": "uniform"})


def _draw_positions(confidence: pd.DataFrame, positional: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """One panel per model; None without both tables for the same heads."""
    if confidence.empty or positional.empty:
        return None
    pairs = _positional_frame(models.main(confidence), models.main(positional))
    if pairs.empty:
        return None
    series, seeds = models.present(pairs), int(pairs["seed"].nunique())
    controls = " Grey: the untrained model." if has_untrained(pairs) else ""
    return Drawn(
        data=pairs.drop(columns="model"),
        panels=[Panel(spec=_scatter(pairs[pairs["series"] == s.key], s), title=s.label) for s in series],
        answer=[
            f"A head is positional if it looks at one neighbour in at least {_POSITIONAL:.0%} of cases: "
            f"{'; '.join(_tally(pairs, s) for s in series)}."
        ],
        words=_positional_words(pairs, series),
        caption=f"Each point is a head{f' of one of {seeds} seeds' if seeds > 1 else ''}; whiskers are 95% intervals "
        f"(bootstrap over sentences), left out where a point hides them; {int(pairs['count'].median()):,} queries per "
        f"head.{' Intervals in the text are over seeds.' if seeds > 1 else ''}{controls}",
    )


POSITIONS = DeclaredFigure(
    name="heads/positions",
    id="head-positions",
    question="Are the heads that look at a neighbour the confident ones?",
    how_to_read=(
        "Across: how often a head's strongest key is the token just before it or, whichever is more, just after. "
        "Up: its mean strongest weight (confidence).",
        f"The dashed lines: {_POSITIONAL:.0%} of queries, the usual threshold of a positional head; and the "
        "confidence of a head that spreads its weight evenly.",
        "It would be surprising to find points at the lower right: heads that always pick a neighbour, but barely.",
    ),
    method=_POSITIONAL_HEADS,
    tables=(HEAD_CONFIDENCE.name, HEAD_POSITIONAL.name),
    findings=("heads:V8",),
    draw=_draw_positions,
)


def _positional_words(pairs: pd.DataFrame, series: list[Series]) -> str:
    """The model with the largest share of positional heads, and whether these are its confident heads."""
    trained = pairs[pairs["trained"]]
    shares = []
    for line in series:
        own = trained[trained["series"] == line.key]
        shares += [Candidate(line.label, plain(float((own["share"] >= _POSITIONAL).mean())))] if len(own) else []
    top = extreme(shares)
    if top is None:
        return ""
    if not top.candidate.estimate.value:
        return sentence(f"no head looks at one neighbour in {_POSITIONAL:.0%} of cases")
    key = next(line.key for line in series if line.label == top.candidate.name)
    own = trained[trained["series"] == key]
    positional = own["share"] >= _POSITIONAL
    inside, outside = _mean_confidence(own[positional]), _mean_confidence(own[~positional])
    also = f", as in {listed(list(top.alike))}" if top.alike else ", the largest share" if len(shares) > 1 else ""
    said = f"{int(positional.sum())} of {len(own)} heads of {top.candidate.name} look at one neighbour{also}"
    if not outside.seeds:
        return sentence(said)
    more = "more" if inside.value > outside.value else "not more"
    numbers = f"mean confidence {number(inside.value, 2)} against {number(outside.value, 2)} of its others"
    return sentence(f"{said}; they are {more} confident: {numbers}")


def _tally(pairs: pd.DataFrame, series: Series) -> str:
    own = pairs[(pairs["series"] == series.key) & pairs["trained"]]
    positional = own["share"] >= _POSITIONAL
    count = int(positional.sum())
    if not count:
        return f"none of {len(own)} heads in {series.label}"
    inside, outside = _mean_confidence(own[positional]), _mean_confidence(own[~positional])
    against = f", against {estimate_text(outside)} for the others" if outside.seeds else ""
    return f"{count} of {len(own)} heads in {series.label}, with mean confidence {estimate_text(inside)}{against}"


def _mean_confidence(heads: pd.DataFrame) -> Estimate:
    """Mean over heads within each seed, then over seeds."""
    means = heads.groupby("seed")["confidence"].mean()
    return Samples.bare(dict(means.items())).estimate()


def _scatter(pairs: pd.DataFrame, series: Series) -> dict[str, Any]:
    x = amount("x", "share", "share looking at one neighbour", SHARE)
    y = amount("y", "confidence", "confidence", SHARE)
    ends = {"x": ("share_low", "share_high"), "y": ("low", "high")}
    drawn = ["series", "seed", "layer", "head", "offset", "share", "confidence", *ends["x"], *ends["y"]]
    trained = pairs.loc[pairs["trained"], drawn].round(4)
    untrained = pairs.loc[~pairs["trained"], ["share", "confidence"]].round(3)
    look = {"color": color_of([series]), "shape": shape_of([series])}
    tooltip = tips("seed:Q", "layer:Q", "head:Q", "offset:Q", "share:Q||.3f", "confidence:Q||.3f")
    uniform = float(pairs.loc[pairs["trained"], "uniform"].mean())
    behind, *drawn = points(trained, untrained, {"x": x, "y": y}, look, ends=ends, tooltip=tooltip, least=_POINT)
    return finished([behind, level(_POSITIONAL, x=x), level(uniform, y=y), *drawn], 240)


_FIGURES = (POSITIONS, IMPORTANCE, REMOVED, CONTEXT)
HEADS = Section(
    id="heads",
    title="What do attention heads do?",
    lead="A head is one way of looking. Some always look at a neighbour, some pick a single token, some spread "
    "over the whole sentence.",
    names=names_of([HEAD_MAP, *_FIGURES]),
)


def heads_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run measured no heads."""
    models, frames = tables.models, tables.some(HEAD_TABLES)
    head_map = HEAD_MAP.of(frames, tables.get(HEAD_EXAMPLES.name), models)
    figures = [
        head_map and replace(head_map, is_chosen=True),
        *drawn_from(frames | tables.some(tables_of(_FIGURES)), _FIGURES, models),
    ]
    return HEADS.told_by(figures, models, [*frames.values(), *tables.some([ENCODER_CONTEXT.name]).values()])
