"""Which functions survive pruning: the remaining heads by function, and what chance would keep."""

from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import by_chance, role_function, role_strength
from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Samples, estimate_text, listed, percent_over_models, sentence
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import CONTROL, amount, bounded, by_key, finished, lit, tips, with_field
from infoflow.report.forms._lines import control_lines, lines, names_above
from infoflow.report.forms._marks import Constant, channel, draw
from infoflow.report.heads._roles import FUNCTION_COLORS, NO_FUNCTION, function_legend
from infoflow.report.heads._statistics import KINDS, kind_label

from ..measures import ALL_HEADS, PRUNED_ROLES
from ._rows import LEARNED, METHOD, SUBSET, PrunableHeads, heads_left, points_axis, pools_of

BEFORE = -1
"""The sweep step of the converged model."""

_HEAD = ["kind", "layer", "head"]
_ORDER = list(FUNCTION_COLORS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Functions:
    """One model's sweep: its first seed's heads and roles, and counts over all seeds.

    `heads` has one row per sweep step, head and role (`holds`: by the role thresholds). `counts` has one row per seed
    and sweep step: the converged model's roles that are left, their initial number, and the number that equally many
    random heads would keep in expectation; no rows if the model had no roles.
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

    def left(self, point: int) -> int:
        """Number of the first seed's remaining heads."""
        return len(self.heads.loc[(self.heads["point"] == point) & self.heads["alive"]].drop_duplicates(_HEAD))

    @property
    def size(self) -> int:
        return len(self.heads.drop_duplicates(_HEAD))

    def lost(self, point: int) -> list[str]:
        """Names of the converged model's roles that no remaining head holds; roles with most holders come first."""
        held = self.heads.loc[self.heads["holds"] & self.heads["alive"]]
        before = (
            held.loc[held["point"] == BEFORE]
            .groupby(["kind", "role"])
            .size()
            .sort_values(ascending=False, kind="stable")
        )
        now = set(held.loc[held["point"] == point, ["kind", "role"]].itertuples(index=False, name=None))
        gone = [(kind, role) for kind in self.kinds for own, role in before.index if own == kind]
        return [role if len(self.kinds) == 1 else f"{role} in {kind}" for kind, role in gone if (kind, role) not in now]

    @property
    def telling(self) -> int:
        """The sweep step nearest to the published 17 of 48, with under half of the heads left; or the last step."""
        shares = {point: self.left(point) / self.size for point in self.points if point != BEFORE}
        few = {point: share for point, share in shares.items() if share < 0.5}
        return min(few, key=lambda point: abs(few[point] - 17 / 48)) if few else max(shares)

    def survivors(self) -> pd.DataFrame:
        """One row per sweep step and remaining head, with the head's strongest tendency.

        The tendency of a head that holds a role is its function; that of another head is the function its scores come
        closest to (`strength`, 0 to 1, see `role_strength`). `place` counts heads of one kind from the bottom of their
        stack: by function, then with the strongest tendency first; heads that hold no role are on top.
        """
        rows = self.heads.loc[self.heads["alive"]]
        rows = rows.assign(order=[_ORDER.index(name) for name in rows["tendency"]])
        held = rows.loc[rows["holds"]].groupby(["point", *_HEAD])["role"].agg(", ".join).rename("roles")
        rows = rows.sort_values(["holds", "strength", "order"], ascending=[False, False, True], kind="stable")
        rows = rows.drop_duplicates(["point", *_HEAD]).merge(held.reset_index(), how="left")
        rows = rows.assign(
            roles=rows["roles"].fillna("none"), function=rows["tendency"].where(rows["holds"], NO_FUNCTION)
        )
        stack = rows["function"].map(_ORDER.index)
        rows = rows.assign(stack=stack).sort_values(
            ["point", "kind", "stack", "order", "strength"], ascending=[True, True, True, True, False]
        )
        return rows.assign(place=rows.groupby(["point", "kind"]).cumcount()).drop(columns=["stack", "order"])


def functions(pool: PrunableHeads, frame: pd.DataFrame, way: str) -> Functions | None:
    """Read a pool's sweep from `pruned_roles`; None if it has no sweep step."""
    own = pool.of(frame)
    own = own.loc[own["way"] == way]
    if pool.scope != ALL_HEADS:  # the others could not be pruned
        own = own.loc[(own["stack"] + "-" + own["kind"]) == pool.scope]
    own = own.assign(tendency=own["role"].map(role_function))
    own = own.loc[own["tendency"] != ""]
    if not set(own["point"]) - {BEFORE}:
        return None
    strength = [
        role_strength(role, score, control)
        for role, score, control in zip(own["role"], own["score"], own["baseline"], strict=True)
    ]
    own = own.assign(
        kind=[kind_label(s, k) for s, k in zip(own["stack"], own["kind"], strict=True)],
        role=own["role"].astype(str).str.replace("-", "−"),
        holds=own["present"].astype(bool),
        alive=own["alive"].astype(bool),
        strength=strength,
    )
    own["tendency"] = own["tendency"].where(own["holds"] | (own["strength"] > 0), NO_FUNCTION)
    rows = [row for _, model in own.groupby(["seed", "draw"]) for row in _counts(model)]
    first = own.loc[own["seed"] == own["seed"].min()]
    before = first.loc[first["point"] == BEFORE]  # tables before version 2 do not say which roles were chosen
    columns = ["point", *_HEAD, "role", "holds", "alive", "tendency", "strength"]
    return Functions(
        pool=pool,
        seed=int(first["seed"].iloc[0]),
        heads=first.loc[first["draw"] == first["draw"].min(), columns],
        counts=pd.DataFrame(rows),
        by_chance=by_chance(before.drop_duplicates([*_HEAD, "role"])) if "chosen" in before else None,
    )


def _counts(model: pd.DataFrame) -> list[dict]:
    """The functions that one seed has left at each sweep step, and the number expected for random heads."""
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


# Which functions survive pruning: the remaining heads at each sweep step, stacked by function, and roles left.


_HEIGHT = 200
_PALE = (0.15, 0.65)  # opacity of heads that hold no function, from the control to the limit of their tendency


def roles_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Stacks of each model's first seed, one panel per kind of attention; counts cover all seeds."""
    way = LEARNED if bool((frame["way"] == LEARNED).any()) else SUBSET
    found: dict[str, Functions] = {}
    for pool in pools_of(frame, models):  # the encoder's heads if they were pruned on their own
        sweep = functions(pool, frame, way)
        if sweep is not None:
            found.setdefault(pool.series.key, sweep)
    if not found:
        return None
    sweeps = list(found.values())
    return ReportFigure(
        id="pruning-functions",
        question="Which functions survive?",
        words=sentence("; ".join(_words(sweep) for sweep in sweeps)),
        panels=_panels(sweeps),
        caption=_caption(sweeps),
        how_to_read=[
            "One column for each point of the sweep; each cell is a head that is left. A head has a function if it "
            "reaches a role's usual threshold on one half of the sentences and exceeds it with its 95% interval on the "
            "other. Functions are measured again at each point, since the heads that are left may change.",
            "Full colours: heads that hold a function. Pale, on top: heads that hold none, in the colour of their "
            "strongest tendency, paler if it is nearer to its control; grey ones exceed no control. Grey and dashed: "
            "how many hold a function among as many random heads of the unpruned model.",
            "Curve: the share of the model's roles, such as one relation in one direction, that some head still holds; "
            "grey and dashed, the same for random heads. It would be surprising if pruning kept fewer.",
        ],
        method=METHOD,
        data=pd.concat([_as_data(sweep) for sweep in sweeps], ignore_index=True),
        tables=(PRUNED_ROLES.name,),
        findings=("heads:V4",),
        template="keyed.html.jinja",
        payload={"legend": function_legend()},
    )


def _words(sweep: Functions) -> str:
    """At the representative sweep step, the share of roles still held, and that of as many random heads."""
    left = f"with {sweep.left(sweep.telling)} of {sweep.size} heads left"
    if sweep.counts.empty:
        return f"no head of {sweep.pool.series.label} holds a function before pruning"
    at = sweep.counts.loc[sweep.counts["point"] == sweep.telling]
    share = percent_over_models((at["functions"] / at["before"]).groupby(at["seed"]).mean().to_dict())
    chance = 100 * float(at["chance"].mean())
    more, less = share.low > chance, share.high < chance  # if one of them has no interval
    verdict = "more than the " if more else "less than the " if less else ""
    verdict = verdict or ("not clearly more or less than the " if share.has_interval else "compared with the ")
    with_interval, lost = estimate_text(share, "%").replace(" %", "%"), sweep.lost(sweep.telling)
    held = with_interval if share.has_interval else f"{share.value:.0f}%"
    return (
        f"{left}, {sweep.pool.series.label} holds {held} of its functions, {verdict}{chance:.0f}% that as many random "
        f"heads would keep{f' (lost: {listed(lost)})' if lost else ''}"
    )


def _caption(sweeps: list[Functions]) -> str:
    seeds = max([int(sweep.counts["seed"].nunique()) for sweep in sweeps if len(sweep.counts)], default=1)
    several = f" Curve: mean over {seeds} seeds with its 95% interval (band)." if seeds > 1 else ""
    known = [sweep.by_chance for sweep in sweeps if sweep.by_chance is not None]
    chance = f" At most {sum(known):.1f} of the roles held before pruning are held by chance." if sum(known) else ""
    heads = listed([f"{sweep.size} heads of {sweep.pool.series.label}" for sweep in sweeps])
    return f"Columns: {heads}, seed {sweeps[0].seed}.{several}{chance}"


def _as_data(sweep: Functions) -> pd.DataFrame:
    """The remaining heads, and how many roles are left: over seeds, and expected by chance."""
    counts = sweep.counts.loc[sweep.counts["seed"] == sweep.seed] if len(sweep.counts) else sweep.counts
    named = sweep.survivors().assign(series=sweep.pool.series.key, scope=sweep.pool.scope, seed=sweep.seed)
    named = named.drop(columns=["role", "holds", "alive"]).assign(size=sweep.size)
    if counts.empty:
        return named
    counts = counts.drop_duplicates("point")[["point", "left", "functions", "before", "chance"]]
    return named.merge(counts, on="point", how="left")


def _panels(sweeps: list[Functions]) -> list[Panel]:
    """The stacks of each kind of attention, then the roles left."""
    panels = []
    for sweep in sweeps:
        heads = sweep.survivors()
        panels += [
            Panel(spec=_stacks(sweep, kind, heads), title=f"{sweep.pool.series.label}, {kind}") for kind in sweep.kinds
        ]
        if len(sweep.counts):
            panels.append(Panel(spec=_curve(sweep), title=f"{sweep.pool.series.label}, functions left"))
    return panels


def _stacks(sweep: Functions, kind: str, heads: pd.DataFrame) -> dict[str, Any]:
    """Every head that is left, as a cell in the column of its sweep step."""
    every = sweep.heads.loc[sweep.heads["kind"] == kind]
    size = len(every.drop_duplicates(_HEAD))
    own = heads.loc[heads["kind"] == kind]
    kept = own.groupby("point").size().reindex(sweep.points, fill_value=0)
    low, high = _PALE
    shade = (low + (high - low) * own["strength"]).where(own["function"] == NO_FUNCTION, 1.0)
    cells = own[["point", "layer", "head", "roles", "tendency", "strength", "place"]].assign(
        top=own["place"] + 1, shade=shade.round(3)
    )
    holders = int((own.loc[own["point"] == BEFORE, "function"] != NO_FUNCTION).sum())
    chance = pd.DataFrame({"point": kept.index, "place": (kept * holders / size).round(2).to_numpy()})
    names = {point: "all" if point == BEFORE else str(kept[point]) for point in sweep.points}
    x = points_axis(names, f"heads left of {size}")
    y = amount("y", "place", "heads", [0, size], ticks=5, tickMinStep=1)
    color = by_key("color", "tendency", list(FUNCTION_COLORS), list(FUNCTION_COLORS.values()))
    tooltip = tips(
        "layer:O", "head:O", "roles:N|holds", "tendency:N|strongest tendency", "strength:Q|of the way to its limit|.0%"
    )
    opacity = channel("opacity", "shade:Q", scale=None, legend=None)
    edge = {"stroke": "var(--paper)", "strokeWidth": 0.6}
    marks = [draw("rect", cells, edge, x=x, y=y, y2="top:Q", color=color, opacity=opacity, tooltip=tooltip)]
    if holders:
        ends = {"x": channel("x", "point:O", bandPosition=0), "x2": channel("x2", "point", bandPosition=1)}
        under = {"color": "var(--paper)", "strokeWidth": 3.5}  # visible on strong colours, too
        marks += [draw("rule", chance, style, ends, y=y) for style in (under, CONTROL)]
        marks.append(names_above([("– –", "with a function, of random heads", "var(--soft)")]))
    return finished(marks, _HEIGHT)


def _curve(sweep: Functions) -> dict[str, Any]:
    series, size = sweep.pool.series, sweep.size
    counts = sweep.counts.assign(share=100 * sweep.counts["functions"] / sweep.counts["before"])
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
