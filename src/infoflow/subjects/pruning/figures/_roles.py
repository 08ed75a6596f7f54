"""Which functions survive pruning: how many are left, who holds them, and what chance would keep."""

from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import by_chance
from infoflow.report._figure import Panel, PanelGroup, ReportFigure
from infoflow.report._in_words import Samples, estimate_text, listed, percent_over_models, sentence
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import NAME, amount, bounded, finished, lit, tips, with_field
from infoflow.report.forms._lines import control_lines, folded, lines, names_above
from infoflow.report.forms._marks import Constant, Layer, calculated, channel, draw, filtered
from infoflow.report.forms._rows import squares
from infoflow.report.heads._statistics import KINDS, kind_label

from ..measures import ALL_HEADS, PRUNED_ROLES
from ._rows import LEARNED, METHOD, SUBSET, PrunableHeads, heads_left, points_axis, pools_of, rows_axis

# Head functions along a pruning sweep: who holds which, which are lost, and what chance would keep.


BEFORE = -1
"""The sweep step of the converged model."""

_HEAD = ["kind", "layer", "head"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Functions:
    """One model's sweep: its first seed's heads and functions, and counts over all seeds.

    `heads` has one row per sweep step, head and function (`holds`: by the role thresholds). `counts` has one row per
    seed and sweep step: the converged model's functions that are left, their initial number, and the number that
    equally many random heads would keep in expectation.
    """

    pool: PrunableHeads
    seed: int
    heads: pd.DataFrame
    counts: pd.DataFrame
    by_chance: float | None  # upper bound for the roles that the first seed held before pruning; None: not known

    @property
    def points(self) -> list[int]:
        """Sweep steps of the first seed, starting with the converged model."""
        return sorted({int(point) for point in self.heads["point"]})

    @property
    def kinds(self) -> list[str]:
        present = set(self.heads["kind"])
        return [name for name in KINDS.values() if name in present]

    def rows_of(self, kind: str) -> pd.DataFrame:
        return self.heads.loc[self.heads["kind"] == kind]

    def left(self, point: int) -> int:
        """Number of the first seed's remaining heads."""
        return len(self.heads.loc[(self.heads["point"] == point) & self.heads["alive"]].drop_duplicates(_HEAD))

    @property
    def size(self) -> int:
        return len(self.heads.drop_duplicates(_HEAD))

    def holders(self) -> pd.DataFrame:
        """Remaining holders of each function (rows) at each sweep step (columns), for functions that ever had one."""
        living = self.heads.assign(held=self.heads["holds"] & self.heads["alive"])
        table = living.pivot_table(index=["kind", "role"], columns="point", values="held", aggfunc="sum").astype(int)
        table = table.loc[table.max(axis=1) > 0]
        order = [self.kinds.index(kind) for kind in table.index.get_level_values("kind")]
        first = table[BEFORE] if BEFORE in table else table.iloc[:, 0]
        return table.iloc[np.lexsort((-first.to_numpy(), order))]

    def lost(self, point: int) -> list[str]:
        """Names of the converged model's functions that no remaining head holds."""
        table = self.holders()
        gone = table.index[(table[BEFORE] > 0) & (table[point] == 0)]
        return [role if len(self.kinds) == 1 else f"{role} in {kind}" for kind, role in gone]

    @property
    def telling(self) -> int:
        """The sweep step below half of the heads nearest to the published 17 of 48; otherwise the last step."""
        shares = {point: self.left(point) / self.size for point in self.points if point != BEFORE}
        few = {point: share for point, share in shares.items() if share < 0.5}
        return min(few, key=lambda point: abs(few[point] - 17 / 48)) if few else max(shares)


def functions(pool: PrunableHeads, frame: pd.DataFrame, way: str) -> Functions | None:
    """Read a pool's sweep from `pruned_roles`; None if no head held a function before it."""
    own = pool.of(frame)
    own = own.loc[own["way"] == way]
    if pool.scope != ALL_HEADS:  # the others could not be pruned
        own = own.loc[(own["stack"] + "-" + own["kind"]) == pool.scope]
    role = own["role"].astype(str).str.replace("-", "−")
    kind = [kind_label(s, k) for s, k in zip(own["stack"], own["kind"], strict=True)]
    own = own.assign(kind=kind, role=role, holds=own["present"].astype(bool), alive=own["alive"].astype(bool))
    if own.empty or not own.loc[own["point"] == BEFORE, "holds"].any() or set(own["point"]) == {BEFORE}:
        return None
    rows = [row for _, model in own.groupby(["seed", "draw"]) for row in _counts(model)]
    first = own.loc[own["seed"] == own["seed"].min()]
    return Functions(
        pool=pool,
        seed=int(first["seed"].iloc[0]),
        heads=first.loc[first["draw"] == first["draw"].min(), ["point", *_HEAD, "role", "holds", "alive"]],
        counts=pd.DataFrame(rows),
        by_chance=_by_chance(first.loc[first["point"] == BEFORE]),
    )


def _by_chance(before: pd.DataFrame) -> float | None:
    """Expected roles by chance; tables before version 2 do not say which roles were chosen."""
    return by_chance(before.drop_duplicates([*_HEAD, "role"])) if "chosen" in before else None


def _counts(model: pd.DataFrame) -> list[dict]:
    """One seed's functions left at each sweep step, and the number expected for random heads."""
    before = model.loc[(model["point"] == BEFORE) & model["holds"]]
    wanted = before.drop_duplicates(["kind", "role", "layer", "head"]).groupby(["kind", "role"]).size()
    rows = []
    for point, at in model.groupby("point"):
        if wanted.empty:
            continue
        heads = at.drop_duplicates(_HEAD)
        kept, num = int(heads["alive"].sum()), len(heads)
        living = at.loc[at["holds"] & at["alive"], ["kind", "role"]].itertuples(index=False, name=None)
        chances = [1 - comb(num - int(holders), kept) / comb(num, kept) for holders in wanted]
        rows.append(
            {
                "seed": int(model["seed"].iloc[0]),
                "draw": int(model["draw"].iloc[0]),
                "point": int(str(point)),
                "left": kept,
                "size": num,
                "functions": len(set(living) & set(wanted.index)),
                "before": len(wanted),
                "chance": float(np.mean(chances)),
            }
        )
    return rows


# Which functions survive pruning: how many are left, who holds them, and heads × functions along the sweep.


_ROW = 18  # pixels of a function's row
_MOST = 24  # functions drawn
_HEIGHT = 200


def roles_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A slider through the sweep of each model's first seed; counts cover all seeds."""
    way = LEARNED if bool((frame["way"] == LEARNED).any()) else SUBSET
    found: dict[str, Functions] = {}
    for pool in pools_of(frame, models):  # the encoder's heads if they were pruned on their own
        told = functions(pool, frame, way)
        if told is not None:
            found.setdefault(pool.series.key, told)
    if not found:
        return None
    sweeps, many = list(found.values()), len(found) > 1
    matrices = [panel for told in sweeps for panel in _matrices(told, many)]
    overviews = _overviews(sweeps)
    longest = max(sweeps, key=lambda told: len(told.points))
    data = pd.concat([_as_data(told) for told in sweeps], ignore_index=True)
    return ReportFigure(
        id="pruning-functions",
        question="Which functions survive?",
        answer=[_sentence(told) for told in sweeps],
        words=sentence("; ".join(_words(told) for told in sweeps)),
        panels=[*matrices, *overviews],
        caption=_caption(sweeps),
        how_to_read=[
            "A function is a role of the head map: a head has it if it reaches the role's usual threshold on one half "
            "of the sentences and exceeds it with its 95% interval on the other. Roles are measured again at each "
            "point of the sweep, since heads that stay may change.",
            "Curve: the share of the model's functions that some living head still has. Grey and dashed, the control: "
            "what as many heads drawn at random from the unpruned model would keep on average. Numbers: living heads "
            "with the function; an empty square is a function that is lost.",
            "Heads by functions: a tinted column is a head that lives; a dot is a function that it holds. A ring is a "
            "head that is gone and that still looks there, to no effect. Move the slider to prune.",
        ],
        method=METHOD,
        data=data,
        tables=(PRUNED_ROLES.name,),
        findings=("heads:V4",),
        template="pruned.html.jinja",
        payload={
            "points": [_point_name(longest, point) for point in longest.points],
            "start": longest.points.index(longest.telling),
            "matrices": [_group(f"pruning-matrix-{index}", [panel]) for index, panel in enumerate(matrices)],
            "overviews": _group("pruning-overview", overviews),
        },
    )


def _group(name: str, panels: list[Panel]) -> PanelGroup:
    return PanelGroup(id=name, label="", note="", scale=("", ""), panels=panels)


def _words(told: Functions) -> str:
    """At the representative sweep step, the share of functions still held, and that of equally many random heads."""
    at = told.counts.loc[told.counts["point"] == told.telling]
    share = percent_over_models((at["functions"] / at["before"]).groupby(at["seed"]).mean().to_dict())
    chance = 100 * float(at["chance"].mean())
    more, less = share.low > chance, share.high < chance  # if one of them has no interval
    verdict = "more than the " if more else "less than the " if less else ""
    verdict = verdict or ("not clearly more or less than the " if share.has_interval else "beside ")
    held = estimate_text(share, "%").replace(" %", "%")
    return (
        f"with {told.left(told.telling)} of {told.size} heads left, {told.pool.series.label} holds {held} of its "
        f"functions, {verdict}{chance:.0f}% that as many random heads would keep"
    )


def _sentence(told: Functions) -> str:
    """At the representative sweep step: functions left, over seeds and by chance, and those lost in the first seed."""
    point = told.telling
    at = told.counts.loc[told.counts["point"] == point]
    lost = told.lost(point)
    seeds = int(at["seed"].nunique())
    share = float((at["functions"] / at["before"]).mean())
    gone = f"lost: {listed(lost)}" if lost else "none is lost"
    own = at.loc[at["seed"] == told.seed].iloc[0]
    which = f" (seed {told.seed}; {share:.0%} over {seeds} seeds)" if seeds > 1 else ""
    return (
        f"{told.pool.subject}: with {told.left(point)} of {told.size} left, {int(own['functions'])} of "
        f"{int(own['before'])} functions are still held{which}; {gone}. As many random heads would keep "
        f"{float(at['chance'].mean()):.0%}."
    )


def _caption(sweeps: list[Functions]) -> str:
    seeds = max(int(told.counts["seed"].nunique()) for told in sweeps)
    over = f"Curve: mean over {seeds} seeds" + ", band their 95% interval over seeds; "
    hidden = max(len(told.holders()) for told in sweeps) - _MOST
    more = f" The {_MOST} functions with most holders are drawn, {hidden} more are in the data." if hidden > 0 else ""
    roles = sum(len(told.holders()) for told in sweeps)
    known = [told.by_chance for told in sweeps if told.by_chance is not None]
    chance = f" Of the roles held before pruning at most {sum(known):.1f} are held by chance." if known else ""
    return f"{over if seeds > 1 else ''}{roles} functions; numbers and dots show the first seed.{more}{chance}"


def _point_name(told: Functions, point: int) -> str:
    return "before" if point == BEFORE else f"{told.left(point)} of {told.size} left"


def _as_data(told: Functions) -> pd.DataFrame:
    """Number of remaining holders of each function at each sweep step."""
    table = told.holders().stack().rename("living_heads").reset_index()
    counts = told.counts.loc[told.counts["seed"] == told.seed, ["point", "left", "functions", "before", "chance"]]
    named = table.assign(series=told.pool.series.key, scope=told.pool.scope, seed=told.seed)
    return named.merge(counts, on="point", how="left")


def _matrices(told: Functions, several: bool) -> list[Panel]:
    """Heads × functions that follow the slider, one panel per kind of attention."""
    name, kinds = f"{told.pool.series.label}: " if several else "", told.kinds
    return [
        Panel(spec=_matrix(told, kind), title=f"{name}heads by functions{f', {kind}' if len(kinds) > 1 else ''}")
        for kind in kinds
    ]


def _overviews(sweeps: list[Functions]) -> list[Panel]:
    """The whole sweep of each model at a glance."""
    names = [f"{told.pool.series.label}: " if len(sweeps) > 1 else "" for told in sweeps]
    pairs = list(zip(names, sweeps, strict=True))
    curves = [Panel(spec=_curve(told), title=f"{name}functions left") for name, told in pairs]
    return curves + [Panel(spec=_holders(told), title=f"{name}heads that hold each") for name, told in pairs]


def _curve(told: Functions) -> dict[str, Any]:
    series, size = told.pool.series, told.size
    counts = told.counts.assign(share=100 * told.counts["functions"] / told.counts["before"])
    rows = []
    for _, at in counts.groupby("point"):
        estimate = Samples.bare(dict(zip(at["seed"], at["share"], strict=False))).estimate()
        rows.append({"left": at["left"].mean(), "value": estimate.value, "low": estimate.low, "high": estimate.high,
                     "chance": 100 * at["chance"].mean()})  # fmt: skip
    table = pd.DataFrame(rows).round(1)
    at = {"x": heads_left(size), "y": amount("y", "value", "functions left (%)", [0, 100])}
    look, light = {"color": Constant(series.color)}, partial(lit, of=series)
    tooltip = tips("left:Q|heads left", "value:Q|functions left (%)", "chance:Q|random heads (%)")
    chance = {**at, "y": with_field(at["y"], "chance")}
    layers = [
        *control_lines(table, chance, band=0, by=""),
        *lines(bounded(table, (0, 100)), at, look, light=light, band=0.15, width=2, size=30, touch=0, tooltip=tooltip),
        names_above([("– –", "random heads", "var(--soft)"), ("●", "learned gates", series.color)]),
    ]
    return finished(layers, _HEIGHT)


def _shown(told: Functions, kind: str | None = None) -> pd.DataFrame:
    """The drawn functions in order, each with its row name."""
    table = told.holders()
    table = table if kind is None else table.loc[table.index.get_level_values("kind") == kind]
    short = {"encoder self-attention": "enc.", "decoder self-attention": "dec.", "cross-attention": "cross"}
    plain = kind is not None or len(told.kinds) == 1
    names = [role if plain else f"{role} ({short.get(k, k)})" for k, role in table.index]
    return table.head(_MOST).assign(name=names[:_MOST])


def _holders(told: Functions) -> dict[str, Any]:
    """Functions × sweep steps: how many remaining heads hold each."""
    shown = _shown(told)
    order = list(shown["name"])
    rows = shown.set_index("name").stack().rename("heads").reset_index()
    rows.columns = ["name", "point", "heads"]
    share = (rows["heads"] / max(int(rows["heads"].max()), 1)).round(2)
    rows = rows.assign(text=[str(heads) if heads else "" for heads in rows["heads"]], share=share)
    names = {point: "all" if point == BEFORE else str(told.left(point)) for point in told.points}
    x = points_axis(names, f"heads left of {told.size}")
    y = rows_axis("name", order)
    held, gone = rows.loc[rows["heads"] > 0].drop(columns="heads"), rows.loc[rows["heads"] == 0, ["name", "point"]]
    empty = draw("rect", gone, filled=False, stroke="var(--control)", strokeDash=[2, 2], x=x, y=y)
    return finished([*squares(folded(held, "name"), x, y, "share"), empty], max(_ROW * len(order), 60))


def _matrix(told: Functions, kind: str) -> dict[str, Any]:
    """Heads × functions at the slider's sweep step."""
    shown, own = _shown(told, kind), told.rows_of(kind)
    order = list(shown["name"])
    per_layer, layers = int(own["head"].max()) + 1, int(own["layer"].max()) + 1
    frames = {point: frame for frame, point in enumerate(told.points)}
    own = own.assign(frame=own["point"].map(frames), place=own["layer"] * per_layer + own["head"])
    alive = own.loc[own["alive"], ["frame", "place"]].drop_duplicates()
    dots = own.loc[own["holds"] & own["role"].isin(order), ["frame", "place", "role", "alive"]]
    color = told.pool.series.color
    places = list(range(per_layer * layers))
    label = f"floor(datum.value / {per_layer})"
    x = channel(
        "x",
        "place:O",
        title="heads, by layer",
        scale={"domain": places, "paddingInner": 0.15},
        axis={"values": places[per_layer // 2 :: per_layer], "labelExpr": label, "labelAngle": 0, "ticks": False},
    )
    y = rows_axis("role", order, gap=0)
    now = "datum.frame === frame"
    tooltip = tips("role:N|function", "layer:Q", "head:Q")
    base = filtered(folded(dots, ["frame", "role"]), now)
    base = calculated(base, layer=label, head=f"datum.place % {per_layer}")
    marks = draw("point", base, filled=True, size=26, opacity=1, x=x, y=y, color=Constant(color), tooltip=tooltip)
    rings = draw("point", base, filled=False, size=22, strokeWidth=1, opacity=1, color="var(--control)", x=x, y=y)
    layers_of_chart = [
        draw("rect", filtered(folded(alive, "frame"), now), color="var(--heat-1)", opacity=0.35, x=x),
        filtered(rings, "!datum.alive"),
        filtered(marks, "datum.alive"),
        *_state(told, kind, shown),
    ]
    return finished(layers_of_chart, max(_ROW * len(order), 60), frame=told.points.index(told.telling))


def _state(told: Functions, kind: str, shown: pd.DataFrame) -> list[Layer]:
    """Numbers of heads and functions left above the picture; a note next to each lost function."""
    own = told.rows_of(kind)
    lines, gone = [], []
    for frame, point in enumerate(told.points):
        left = len(own.loc[(own["point"] == point) & own["alive"]].drop_duplicates(["layer", "head"]))
        had = shown.loc[shown[BEFORE] > 0]
        lost = had.loc[had[point] == 0, "name"]
        live = f"{left} head{'s live' if left != 1 else ' lives'}"
        lines.append({"frame": frame, "text": f"{live}, {len(had) - len(lost)} of {len(had)} functions"})
        gone += [{"frame": frame, "role": name, "text": "lost"} for name in lost]
    now = "datum.frame === frame"
    y = rows_axis("role", list(shown["name"]), gap=0)
    above = filtered(pd.DataFrame(lines), now)
    beside = filtered(pd.DataFrame(gone, columns=["frame", "role", "text"]), now)
    words = {**NAME, "color": "var(--soft)", "align": "right", "x": Constant("width"), "text": "text:N"}
    return [
        draw("text", above, words, baseline="bottom", y=Constant(-4)),
        draw("text", beside, words, dx=-2, y=y),
    ]
