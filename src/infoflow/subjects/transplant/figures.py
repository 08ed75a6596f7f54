"""Figures of fresh models with heads of a trained one: do they learn faster?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import TRANSPLANT_CURVES, TRANSPLANTED_HEADS, VARIANTS, log_mean
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._in_words import Estimate, Samples, number, size_text
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import CONTROL, amount, by_key, finished, lit, tips
from infoflow.report.forms._lines import LineKind, dash_of, level, lines, names_above, shape_of
from infoflow.report.forms._marks import Channel, span
from infoflow.subjects.pruning.figures._rows import several, signature

_HEIGHT = 230
_FIELD = "arm"
_ZERO = {**CONTROL, "strokeDash": [1, 0], "strokeWidth": 1}
NONE, SPECIALISED, RANDOM, SHUFFLED = VARIANTS
_VARIANTS = (
    LineKind(key=SPECIALISED, label="specialised heads", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key=RANDOM, label="random heads of the same model", dash=(6, 3), shape="square", mark="■"),
    LineKind(key=SHUFFLED, label="shuffled specialised heads", dash=(1, 3), shape="triangle-up", mark="▲"),
    LineKind(key=NONE, label="its own heads", dash=(12, 3, 2, 3), shape="diamond", mark="◆"),
)
_UNIT = "nats per token"
_TITLES = {"loss": f"held-out loss ({_UNIT})", "gain": f"gain ({_UNIT})"}

METHOD = Method(
    id="transplant",
    title="Transplanted heads",
    text="""
    A head consists of its rows of the query, key and value projections with their biases and its columns of the output
    projection. They are copied bit for bit into the same layer and head of a fresh model, which is initialised with a
    different seed than the trained model. Specialised heads are those with a role (positional, syntactic or rarest
    token), then the most important ones, as set in the plan, but at most half of a layer's heads. Random heads are the
    same number of other heads in the same layers; shuffled heads are the specialised heads with the numbers of each
    matrix in random order. All fresh models of a seed start from the same weights and read the same batches in the same
    order. Frozen heads get no gradient, no weight decay and no moments. The loss is computed on the same held-out
    sentences at every point; over a whole curve it is the mean over the logarithm of updates <i>s</i>,
    ∫ <i>L</i> d ln <i>s</i> / ∫ d ln <i>s</i>.
    """,
)
WAYS = {False: "heads keep learning", True: "frozen heads"}


def _heads(
    frame: pd.DataFrame,
    table: pd.DataFrame,
    variants: list[LineKind],
    models: ModelSelection,
    heads: pd.DataFrame | None,
) -> Drawn:
    panels, every = [], models.present(table)
    for series in every:
        for what in ("loss", "gain"):
            both = table[(table["series"] == series.key) & (table["what"] == what)]
            zero = [0.0] if what == "gain" else []
            y = amount("y", "value", _TITLES[what], span(both[["value", "low", "high"]], zero, margin=0.06))
            for frozen in WAYS:
                own = both[both["frozen"] == frozen]
                if len(own):
                    chart = _chart(own, series, what, variants, y)
                    panels.append(Panel(spec=chart, title=_title(series, frozen, what, every)))
    return Drawn(
        data=table.round({"value": 5, "low": 5, "high": 5}),
        panels=panels,
        answer=[text for series in every for text in _sentences(frame, series)],
        caption=f"{several(frame)}; {int(table['count'].median()):,} held-out sentences, the same at every point. "
        f"{_placed(frame)}{_roles(heads)}{signature(frame)}",
    )


def _title(series: Series, frozen: bool, what: str, every: list[Series]) -> str:
    shown = WAYS[frozen] if what == "loss" else f"{WAYS[frozen]}, gain over the model's own heads"
    return f"{series.label}, {shown}" if len(every) > 1 else f"{shown[:1].upper()}{shown[1:]}"


def _placed(frame: pd.DataFrame) -> str:
    """The number of transplanted heads, and of random draws."""
    counts = sorted({int(count) for count in frame.loc[frame["arm"] == SPECIALISED, "heads"]})
    heads = " or ".join(map(str, counts))
    draws = int(frame.loc[frame["arm"] == RANDOM, "draw"].nunique())
    random = f", random ones as the mean of {draws} draws" if draws > 1 else ""
    return f"{heads} head{'' if counts == [1] else 's'} put into each fresh model{random}."


def _roles(heads: pd.DataFrame | None) -> str:
    """How many specialised heads hold a role, and how many would by chance; "" if none were chosen by role."""
    own = pd.DataFrame() if heads is None else heads[heads["arm"] == SPECIALISED]
    if "by_chance" not in own or not bool(own["by_chance"].notna().any()):
        return ""
    holding = int((own["roles"] != "").sum())
    chance = own["by_chance"].max()
    said = f"{holding} of the {len(own)} specialised heads hold a role"
    return f" {said}; by chance, at most {chance:.1f} roles would be held per model."


def _chart(own: pd.DataFrame, series: Series, what: str, variants: list[LineKind], y: Channel) -> dict[str, Any]:
    shown = [variant for variant in variants if bool((own["arm"] == variant.key).any())]
    colors = [series.color if variant.key == SPECIALISED else "var(--control)" for variant in shown]
    steps = [int(own["step"].min()), int(own["step"].max())]
    x = amount("x", "step", "updates of the fresh model", steps, type="log", zero=None, format="~s")
    at = {"x": x, "y": y}
    look = {
        "color": by_key("color", _FIELD, [variant.key for variant in shown], colors),
        "strokeDash": dash_of(shown, _FIELD),
        "shape": shape_of(shown, _FIELD),
    }
    rows = own[["arm", "step", "value", "low", "high", "seeds"]].round({"value": 5, "low": 5, "high": 5})
    tooltip = tips("arm:N|heads", "step:Q|updates|,", f"value:Q|{'loss' if what == 'loss' else 'gain'}|.3f")
    how = {"light": partial(lit, of=series), "band": 0.16, "width": 1.8, "size": 24, "touch": 0}
    zero = [level(0.0, _ZERO, y=at["y"])] if what == "gain" else []
    layers = lines(rows, at, look, **how, tooltip=tooltip, beneath=zero)
    names = names_above([(variant.mark, variant.label, color) for variant, color in zip(shown, colors, strict=True)])
    return finished([*layers, names], _HEIGHT)


def _sentences(frame: pd.DataFrame, series: Series) -> list[str]:
    """Compare specialised with random heads, and shuffled heads with the fresh model's own; the first also in BLEU."""
    own = frame[frame["series"] == series.key]
    stated = {frozen: _against(own, frozen, SPECIALISED, RANDOM, "random ones") for frozen in WAYS}
    control = {frozen: _against(own, frozen, SHUFFLED, NONE, "the model's own") for frozen in WAYS}
    found = [f"In a fresh model of {series.label}, specialised heads{_ways(stated)}."] if any(stated.values()) else []
    found += [f"The control: shuffled heads{_ways(control)}."] if any(control.values()) else []
    return found + _bleu_sentence(own)


def _ways(stated: dict[bool, str]) -> str:
    """Effects of heads that continue to learn and of frozen ones, to follow "heads" in a sentence."""
    learning, frozen = stated[False], stated[True]
    return (f" {learning}; frozen, they {frozen}" if learning else f", frozen, {frozen}") if frozen else f" {learning}"


def _against(own: pd.DataFrame, frozen: bool, variant: str, other: str, name: str) -> str:
    """One variant's gain over another, over the curve and at its end; "" if either was not trained."""
    first, second = curve_of(own, other, frozen), curve_of(own, variant, frozen)
    if first is None or second is None or first.steps != second.steps:
        return ""
    over, end = (first.over() - second.over()).estimate(), (first.at(-1) - second.at(-1)).estimate()
    return f"{_gains(over, _UNIT)} against {name} over the whole curve and {_gains(end)} at its end"


def _gains(gain: Estimate, unit: str = "") -> str:
    text = f"{'gain' if gain.value > 0 else 'lose'} {size_text(gain, unit)}"
    return text if gain.sign or not gain.has_interval else f"{text.removesuffix(')')}, may be chance)"


def _bleu_sentence(own: pd.DataFrame) -> list[str]:
    """Gain of specialised over random heads in BLEU; none without BLEU."""
    stated = dict.fromkeys(WAYS, "")
    for frozen in WAYS:
        first, second = (last_of(own, variant, frozen, "bleu") for variant in (SPECIALISED, RANDOM))
        if first and second:
            stated[frozen] = f"{_gains((first - second).estimate())} against random ones"
    if not any(stated.values()):
        return []
    full = number(float(own.loc[own["metric"] == "bleu", "baseline"].mean()), 1)
    return [f"In BLEU at the end, specialised heads{_ways(stated)} (the trained model has {full})."]


HEADS = DeclaredFigure(
    name="transplant/heads",
    id="transplanted-heads",
    question="Does a fresh model learn faster with specialised heads from a trained one?",
    how_to_read=(
        "Upper panels: held-out loss of fresh models by number of updates. In colour: models with specialised "
        "heads of the trained model in place of some of their own. Grey: with random other heads of the same "
        "layers; with the specialised heads after shuffling the numbers of each matrix; and with their own "
        "heads. The transplanted heads either keep learning with all other weights or are frozen; the model's own "
        "heads, when frozen, stay as initialised.",
        "Lower panels: how much lower the loss is than with the model's own heads, sentence by sentence; above 0 "
        "is better. If specialised heads help because of what they do, their line lies above that of random "
        "heads, and that of shuffled heads stays near 0. It would be surprising if shuffled heads helped.",
    ),
    method=METHOD,
    tables=(TRANSPLANT_CURVES.name,),
    findings=("heads:H1",),
    draw=_heads,
)
TRANSPLANT = Section(
    id="transplant",
    title="Do heads keep what they have learned when moved to another model?",
    lead="Heads of a trained model are put into a fresh one. If what they do is useful by itself, the fresh model "
    "learns faster than with other heads of the same trained model.",
    names=names_of([HEADS]),
)


def transplant_section(tables: ModelTables) -> Section | None:
    """The section, or None if no heads were transplanted into fresh models."""
    if TRANSPLANT_CURVES.name not in tables:
        return None
    frame, models = tables[TRANSPLANT_CURVES.name], tables.models
    frame = frame[frame["trained"]]
    variants = [variant for variant in _VARIANTS if bool((frame["arm"] == variant.key).any())]
    if not any(variant.key == SPECIALISED for variant in variants):
        return None
    table = curve_rows(frame, [variant.key for variant in variants])
    figure = HEADS.of(frame, table, variants, models, tables.get(TRANSPLANTED_HEADS.name))
    return None if figure is None else replace(TRANSPLANT, figures=[figure], keys=models.present(table))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VariantCurve:
    """Scores of one variant by seed, at each step, with their replicates."""

    steps: tuple[int, ...]
    values: dict[object, np.ndarray]  # (P,)
    replicates: dict[object, np.ndarray]  # (R, P)
    count: int

    def at(self, index: int) -> Samples:
        """The score at one step."""
        values = {seed: float(own[index]) for seed, own in self.values.items()}
        drawn = {seed: own[:, index] for seed, own in self.replicates.items()}
        return Samples.by_key(values, drawn, count=self.count)

    def over(self) -> Samples:
        """The mean over the logarithm of updates."""
        values = {seed: float(log_mean(self.steps, own[None])[0]) for seed, own in self.values.items()}
        drawn = {seed: log_mean(self.steps, own) for seed, own in self.replicates.items()}
        return Samples.by_key(values, drawn, count=self.count)


def curve_of(frame: pd.DataFrame, variant: str, frozen: bool, metric: str = "loss") -> VariantCurve | None:
    """A variant's scores from the first update on, as means over its draws; None if there are none."""
    wanted = (frame["arm"] == variant) & (frame["frozen"] == frozen) & (frame["metric"] == metric)
    own = frame[wanted & (frame["step"] > 0)]
    if own.empty:
        return None
    steps = sorted(int(step) for step in own["step"].unique())
    values, replicates = {}, {}
    for seed, rows in own.groupby("seed"):
        wide = rows.pivot_table(index="draw", columns="step", values="value").reindex(columns=steps)
        if wide.isna().to_numpy().any():
            continue  # a seed with missing steps
        values[seed] = wide.to_numpy().mean(axis=0)
        drawn = [
            np.stack([np.asarray(one, dtype=float) for one in part.sort_values("step")["replicates"]], axis=1)
            for _, part in rows.groupby("draw")
        ]
        replicates[seed] = np.mean(drawn, axis=0)
    return VariantCurve(steps=tuple(steps), values=values, replicates=replicates, count=int(own["count"].median()))


def last_of(frame: pd.DataFrame, variant: str, frozen: bool, metric: str) -> Samples | None:
    """A variant's final score; None if there is none."""
    curve = curve_of(frame, variant, frozen, metric)
    return None if curve is None else curve.at(-1)


def curve_rows(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """One row per line, freezing, variant and step: the loss, and the gain over the fresh model's own heads."""
    rows: list[dict[str, Any]] = []
    for series, own in frame.groupby("series", sort=False):
        for frozen in WAYS:
            plain = curve_of(own, NONE, frozen)
            for variant in variants:
                curve = curve_of(own, variant, frozen)
                for index, step in enumerate(curve.steps if curve else ()):
                    assert curve is not None
                    row = {"series": series, "frozen": frozen, "arm": variant, "step": step}
                    rows.append({**row, "what": "loss", **asdict(curve.at(index).estimate())})
                    if plain is not None and variant != NONE and plain.steps == curve.steps:
                        gain = (plain.at(index) - curve.at(index)).estimate()
                        rows.append({**row, "what": "gain", **asdict(gain)})
    columns = ["series", "frozen", "arm", "step", "what", "value", "low", "high", "seeds", "count"]
    return pd.DataFrame(rows, columns=columns)


SECTIONS = ((150, TRANSPLANT, transplant_section),)
