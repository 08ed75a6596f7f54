"""The section over scale: every claim's effect in every run, by tokens and width."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.findings import FINDINGS_OVER_SCALE
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._in_words import counted, listed, number
from infoflow.report._model_tables import ModelTables
from infoflow.report._summary import verdict_verb
from infoflow.report.forms._chart import CONTROL, amount, by_key, finished, spread, tips, with_field
from infoflow.report.forms._marks import Channel, Layer, channel, draw
from infoflow.report.forms._over_time import HOLLOW_MARK, layer_shades, short
from infoflow.results import END

from ..claims._scale_slope import FLAT, scale_groups
from ..claims._scale_trends import TRENDS, reported_claims
from ._warmups import timed_stages

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (5, 3), (2, 2), (8, 2, 2, 2), (1, 3), (10, 4), (4, 1), (6, 2, 1, 2))
_LATE = 0.1  # share of a run's tokens, as in `trends`


def tested_rows(found: pd.DataFrame) -> pd.DataFrame:
    """The followed rows (ends of training and late checkpoints) of each claim with effects at two scales.

    `line` identifies the points that one line joins: runs of one width, depth and corpus, or checkpoints of one run.
    """
    tested = found[found["followed"] & (found["verdict"] != "not testable here")]
    tested = tested[tested["effect"].notna() & tested["tokens"].gt(0)]
    late = tested["tokens"] >= _LATE * tested.groupby("run")["tokens"].transform("max")
    tested = tested[late | (tested["update"] == END)]
    kept = [own for _, own in tested.groupby(["id", "architecture"], sort=False) if _several(own)]
    if not kept:
        return tested.head(0).assign(line="")
    order = {id: index for index, id in enumerate(dict.fromkeys(found["id"]))}
    rows = pd.concat(kept).sort_values("tokens", kind="stable")
    rows = rows.sort_values("id", key=lambda ids: ids.map(order), kind="stable")
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
        return [{"label": name, "shape": SHAPES[index % len(SHAPES)]} for index, name in enumerate(self.corpora)]

    def name_of(self, width: str, corpus: str) -> str:
        """Label of a line, next to its last mark: the width, and the corpus if most runs have another one."""
        stated = [width] if len(self.widths) > 1 else []
        stated += [corpus.split(":")[0]] if corpus != self.corpora[0] or not stated else []
        return ", ".join(stated)

    @property
    def in_words(self) -> str:
        widths = f"width{'s' if len(self.widths) > 1 else ''} {listed([str(width) for width in self.widths])}"
        first, last = map(short, self.tokens)
        return f"{widths}; {first} to {last} tokens; {listed(list(self.corpora))}"


# The section over scale: every claim's effect in every run, by tokens and width.


_METHOD = Method(
    id="over-scale",
    title="Findings over scale",
    text=rf"""
    Every run is judged separately. For each claim, one condition is followed: the one that decides its verdict in most
    runs. The slope over the logarithm of tokens (or of the width) comes from a weighted regression; its interval
    covers the choice of seeds and of sentences in each run, by Student's t with Satterthwaite's degrees of freedom. A
    trend needs three scales. It is <em>flat</em> where the whole interval lies within {FLAT} of the distance from the
    threshold to the published value, or to the effect where the source gives none, per factor of ten in scale; it
    <em>grows</em> where the whole interval lies on the side on which the claim holds, <em>falls</em> where it lies on
    the other side, and is <em>undetermined</em> otherwise. Checkpoints of one run depend on each other: they are
    drawn but never mixed with runs. With fewer than three runs, the trend comes from each seed's own slope over its
    checkpoints, from a tenth of the tokens on, with an interval over seeds; at those checkpoints, the learning rate
    had not yet fallen.
    """,
)
_VERDICTS, _WORDS = ("holds", "undetermined", "fails"), ("grows", "flat", "undetermined", "falls")
HEIGHT = 170
_ROOM = 1.6  # factor by which the axis continues after the last run, for the name of its width
_NAME = {"align": "left", "dx": 7, "fontSize": 10, "fontWeight": "bold"}
_LINE_NAME = {"align": "left", "fontSize": 9.5, "color": "var(--soft)"}
_LINE = 12  # pixels between names
_APART = 0.025  # share of the axis between marks of two widths at the same tokens
_ABOVE, _BELOW = {"baseline": "bottom", "dy": -2}, {"baseline": "top", "dy": 3}


def _claims_over_scale(found: pd.DataFrame, rows: pd.DataFrame, trends: pd.DataFrame) -> Drawn:
    grid = Grid.of(rows)
    claims = sorted(_claims(rows, trends), key=lambda claim: claim["order"])
    drawn = [rows[(rows["id"] == one["id"]) & (rows["architecture"] == one["architecture"])] for one in claims]
    left = int(found["id"].nunique()) - len({one["id"] for one in claims})
    return Drawn(
        data=rows.drop(columns=["effects", "line"]),
        panels=[
            Panel(spec=claim_panel(own, grid), title=f"{one['short']}: {one['told']}")
            for one, own in zip(claims, drawn, strict=True)
        ],
        answer=_sentences(claims),
        findings=tuple(dict.fromkeys(one["id"] for one in claims)),
        caption=f"{counted(rows['run'].nunique(), 'run')}: {grid.in_words}. Bars are 95% intervals. Not tested at two "
        f"scales or more: {counted(left, 'claim')}.",
        payload={"claims": claims, "widths": grid.legend, "corpora": grid.corpora_legend},
    )


def _claims(rows: pd.DataFrame, trends: pd.DataFrame) -> list[dict[str, Any]]:
    stated, families = reported_claims(trends), len(set(rows["architecture"]))
    found = []
    for at, (_, own) in enumerate(rows.groupby(["id", "architecture"], sort=False)):
        last = _largest(own)
        id, family, verdict = str(last["id"]), str(last["architecture"]), str(last["verdict"])
        words = stated.get((id, family), "too few scales")
        order = (_VERDICTS.index(verdict), min(_place(words), default=len(_WORDS)), at)
        found.append(
            {
                "id": id,
                "architecture": family,
                "short": f"{id.split(':')[-1]}{f' ({family})' if families > 1 else ''}",
                "claim": str(last["claim"]),
                "condition": str(last["condition"]),
                "verdict": verdict,
                "told": words,
                "where": f"{number(float(last['effect']))} {last['unit']}".strip(),
                "order": order,
            }
        )
    return found


def _place(words: str) -> list[int]:
    return [index for index, word in enumerate(_WORDS) if word in words]


def _largest(rows: pd.DataFrame) -> pd.Series:
    """The row of the most expensive run, or of the last checkpoint if no run was tested at its end."""
    ended = rows[rows["update"] == END]
    own = ended if len(ended) else rows
    return own.loc[(own["tokens"] * own["parameters"]).idxmax()]


def _sentences(claims: list[dict[str, Any]]) -> list[str]:
    num = len(claims)
    counts = {verdict: sum(one["verdict"] == verdict for one in claims) for verdict in _VERDICTS}
    claims_counted = "one claim" if num == 1 else f"{num} claims"
    held = f"Of {claims_counted} tested at two scales or more, {counts['holds'] or 'none'}"
    said = [f"{held} {verdict_verb('holds', counts['holds'])} in the largest run."]
    for word, verb in (("grows", "grow"), ("falls", "fall"), ("flat", "are flat")):
        names = [one["short"] for one in claims if _place(one["told"])[:1] == [_WORDS.index(word)]]
        if names:
            each = word if len(names) == 1 and word != "flat" else "is flat" if len(names) == 1 else verb
            said.append(f"{listed(names)} {each}.")
    return said


CLAIMS = DeclaredFigure(
    name="scale/claims",
    id="findings-over-scale",
    question="Which claims come closer to the published values with more tokens or wider models?",
    how_to_read=(
        "Each panel is a claim: its effect against the number of tokens that the models read, on a logarithmic "
        "axis. The dashed line is the threshold, the solid line the published value if the source gives one.",
        "Each mark is a run at the end of its training. It is hollow if the run has one seed; its interval then "
        "covers only the choice of sentences. The label at the end of a line gives the width, and the corpus if "
        "it differs from that of most runs. Thin lines are checkpoints of one run, measured on less text.",
        "Claims that hold in the largest run come first, and among these the ones that grow.",
    ),
    method=_METHOD,
    tables=(FINDINGS_OVER_SCALE.name, TRENDS.name),
    template="over_scale.html.jinja",
    draw=_claims_over_scale,
)
OVER_SCALE = Section(
    id="over-scale",
    short="Scale",
    title="Do the claims grow with scale?",
    lead="The same claims on models that read more or are wider: what fails in small models may hold in larger ones.",
    names=names_of([CLAIMS]),
)


def over_scale_section(tables: ModelTables) -> Section | None:
    """The section; None if no runs were compared over scale, for example if only two warm-ups were compared."""
    found, trends = tables.of_run(FINDINGS_OVER_SCALE.name), tables.of_run(TRENDS.name)
    if found is None or trends is None:
        return None
    rows = tested_rows(found)
    if rows.empty and timed_stages(tables) is not None:
        return None
    if rows.empty:
        return replace(OVER_SCALE, notes=["No claim could be tested at two scales."])
    figure = CLAIMS.of(found, rows, trends)
    return replace(OVER_SCALE, figures=[figure] if figure else [])


def claim_panel(rows: pd.DataFrame, grid: Grid) -> dict[str, Any]:
    """The chart of one claim's rows (see `tested_rows`)."""
    ends = _ends(rows)
    columns = ["run", "corpus", "width", "tokens", "effect", "low", "high", "seeds", "verdict", "update", "line"]
    shown = rows[columns].assign(
        width=rows["width"].astype(str),
        low=rows["low"].clip(*ends),
        high=rows["high"].clip(*ends),
        told=rows["verdict"] + rows["seeds"].map(lambda seeds: f", {seeds} seed{'s' if seeds > 1 else ''}"),
    )
    runs, checkpoints = shown[shown["update"] == END], shown[shown["update"] != END]
    y_title = str(rows["unit"].iloc[0]) or None
    at = {"x": _tokens(grid), "y": amount("y", "effect", y_title, ends, ticks=4)}
    look = {
        "color": by_key("color", "width", [str(width) for width in grid.widths], grid.shades),
        "strokeDash": by_key("strokeDash", "corpus", grid.corpora, _cycled(DASHES, grid)),
    }
    layers = [*_levels(rows, at, grid, ends)]
    if len(checkpoints):
        thin = {"strokeWidth": 1, "opacity": 0.6, "color": look["color"], "detail": "line:N"}
        layers.append(draw("line", checkpoints, at, thin, tooltip=_tooltip()))
    if len(runs):
        layers += _runs(runs.assign(place=_apart(runs, grid)), at, look, grid, ends)
    return finished(layers, HEIGHT)


def _runs(
    runs: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], grid: Grid, ends: tuple[float, float]
) -> list[Layer]:
    base, at = runs, {**at, "x": with_field(at["x"], "place")}
    shape = by_key("shape", "corpus", grid.corpora, _cycled(SHAPES, grid))
    y = {"y": with_field(at["y"], "low"), "y2": "high:Q"}
    layers = [
        draw("line", base, at, look, strokeWidth=1.4, opacity=0.7, detail="line:N"),
        draw("rule", base, y, strokeWidth=2, x=at["x"], color=look["color"]),
    ]
    marks = {"size": 46, "opacity": 1, "color": look["color"], "shape": shape, "tooltip": _tooltip()}
    for several in (True, False):
        own = runs[(runs["seeds"] > 1) == several]
        if len(own):
            layers.append(draw("point", own, {"filled": True} if several else HOLLOW_MARK, at, marks))
    if max(len(grid.widths), len(grid.corpora)) > 1:
        last = runs.loc[runs.groupby("line")["tokens"].idxmax()]
        last = last.assign(name=[grid.name_of(row.width, row.corpus) for row in last.itertuples()])
        height = {"x": at["x"], "y": with_field(at["y"], "height")}
        layers.append(draw("text", _name_positions(last, ends), _NAME, height, color=look["color"], text="name:N"))
    return layers


def _apart(runs: pd.DataFrame, grid: Grid) -> pd.Series:
    """Tokens, with horizontal offsets between marks of different widths."""
    low, high = _domain(grid)
    places = runs["width"].map({str(width): index for index, width in enumerate(grid.widths)})
    return runs["tokens"] * (high / low) ** (_APART * (places - (len(grid.widths) - 1) / 2))


def _name_positions(last: pd.DataFrame, ends: tuple[float, float]) -> pd.DataFrame:
    """The last marks with the `place` and `height` of their names.

    Names at the same number of tokens cover neither each other nor a mark.
    """
    gap = (ends[1] - ends[0]) * _LINE / HEIGHT
    groups = [own for _, own in last.groupby(scale_groups(last["tokens"].tolist()))]
    return pd.concat(
        own.assign(place=own["place"].max(), height=spread(list(own["effect"]), gap, ends[1])) for own in groups
    )


def _levels(rows: pd.DataFrame, at: dict[str, Any], grid: Grid, ends: tuple[float, float]) -> list[Layer]:
    """Labelled lines of the threshold and the published value."""
    last = rows.iloc[-1]
    threshold, published = float(last["threshold"]), float(last["published"])
    upper = not published < threshold
    levels = [("needed", threshold, CONTROL, _BELOW if upper else _ABOVE)]
    if published == published:
        style = {"color": "var(--soft)", "strokeWidth": 1.2}
        levels.append(("published", published, style, _ABOVE if upper else _BELOW))
    drawn, at_the_axis = [], ends[0] + (ends[1] - ends[0]) * 1.2 * _LINE / HEIGHT
    for name, value, style, wanted in levels:
        side = _ABOVE if value < at_the_axis else wanted
        base = pd.DataFrame([{"effect": value, "tokens": grid.tokens[0] / 1.2, "text": name}])
        drawn.append(draw("rule", base, style, y=at["y"]))
        drawn.append(draw("text", base, _LINE_NAME, side, at, text="text:N"))
    return drawn


def _tokens(grid: Grid) -> Channel:
    low, high = _domain(grid)
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high) + 1)
    steps = (1, 3) if high / low > 8 else (1, 2, 5)
    values = [float(decade * step) for decade in decades for step in steps if low <= decade * step <= high]
    labels = {str(value): short(value) for value in values}
    stated = " : ".join(f"datum.value == {value} ? '{label}'" for value, label in labels.items()) + " : ''"
    axis = {"values": values, "labelExpr": stated, "grid": False, "labelOverlap": "greedy"}
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return channel("x", "tokens:Q", title="tokens", scale=scale, axis=axis)


def _domain(grid: Grid) -> tuple[float, float]:
    return grid.tokens[0] / 1.25, grid.tokens[1] * _ROOM


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """Axis range that shows all effects, the threshold and the published value, and intervals up to one span beyond."""
    core = rows[["effect", "threshold", "published"]].to_numpy(dtype=float)
    low, high = float(np.nanmin(core)), float(np.nanmax(core))
    span = (high - low) or abs(high) or 1.0
    lows, highs = (np.clip(rows[name].dropna(), low - span, high + span) for name in ("low", "high"))
    return min([low, *lows]) - 0.08 * span, max([high, *highs]) + 0.12 * span


def _cycled(values: Any, grid: Grid) -> list[Any]:
    found = [values[index % len(values)] for index in range(len(grid.corpora))]
    return [list(value) if isinstance(value, tuple) else value for value in found]


def _tooltip() -> list[Channel]:
    return tips(
        "run:N", "corpus:N", "width:N", "tokens:Q||.3s", "effect:Q||.3g", "low:Q||.3g", "high:Q||.3g", "told:N|verdict"
    )
