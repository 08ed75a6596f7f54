"""Which components raise the loss, and how often: as sums over layers, and parameter by parameter."""

from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Panel
from infoflow.report._in_words import Candidate, extremes_words, percent_over_models, percent_span
from infoflow.report._numbers import count_text
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import tips
from infoflow.report.forms._dots import interval_dots
from infoflow.report.forms._marks import Constant, draw

from ..measures import ALLOCATION_HURTING, ALLOCATION_RELIABILITY
from ._rows import COMPONENTS, LOSS_CHANGE, ModelStack, joined, of_part, parts_of, shown_component

_NAMES = {"embeddings": "embeddings", "positions": "positions"} | {key: label for key, (label, _) in COMPONENTS.items()}


def _hurting(hurting: pd.DataFrame, reliability: pd.DataFrame, models: ShownModels) -> Drawn:
    """Share of steps in which a component raised the loss, compared with the share of its parameters that did."""
    parts = parts_of(hurting, models)
    tables = {part: _table(_rows_of(hurting, part)) for part in parts}
    every = int(hurting["updates_per_chord"].max())
    step = "steps" if every == 1 else f"stretches of {every} updates"
    agreement = float(reliability.loc[reliability["statistic"] == "sign agreement of parameters", "value"].mean())
    sure = (
        f" Two halves of the examples agree on the sign for {agreement:.0%} of single parameters."
        if agreement == agreement
        else ""
    )
    return Drawn(
        data=joined(tables),
        panels=[Panel(spec=_chart(table, step), title=part.label) for part, table in tables.items()],
        answer=[f"{'; '.join(_sentence(part, table) for part, table in tables.items())}.{sure}"],
        words=_words({part: _rows_of(hurting, part) for part in parts}, step),
        caption=f"On training sentences; means over {int(hurting['seed'].nunique())} seeds, "
        f"{count_text(float(hurting['chords'].max()))} {step} each; bars go from the lowest seed to the highest.",
    )


def _rows_of(hurting: pd.DataFrame, part: ModelStack) -> pd.DataFrame:
    rows = of_part(hurting, part)
    rows = rows[rows["level"].isin(["block", "parameter"])].assign(component=shown_component(rows))
    return rows[rows["component"].isin(_NAMES)]


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per component: steps that hurt (of the sum), parameters that hurt, last and largest."""
    blocks = rows[rows["level"] == "block"]
    seeds: Any = blocks.groupby(["component", "seed"]).agg(
        hurt=("hurt", "mean"), zero=("zero", "mean"), last=("last_hurt", "max"), largest=("largest", "max")
    )
    summed: Any = seeds.reset_index().groupby("component")
    table = summed.agg(
        hurt=("hurt", "mean"),
        low=("hurt", "min"),
        high=("hurt", "max"),
        zero=("zero", "mean"),
        last=("last", "mean"),
        largest=("largest", "mean"),
    )
    single = rows[rows["level"] == "parameter"].groupby("component")["hurt"].mean().rename("parameters")
    table = table.join(single).reset_index()
    return table.assign(name=table["component"].map(_NAMES))


def _words(rows: dict[ModelStack, pd.DataFrame], step: str) -> str:
    """The components that hurt most and least often, compared with their single parameters."""
    found, single = [], []
    for part, own in rows.items():
        for component, of in own[own["level"] == "block"].groupby("component", sort=False):
            hurt = of.groupby("seed")["hurt"].mean()
            found.append(
                Candidate(f"for {_NAMES[str(component)]} in {part.label}", percent_over_models(hurt.to_dict()))
            )
        single.append(float(own.loc[own["level"] == "parameter", "hurt"].mean()))
    beside = f"for single parameters {known}" if (known := percent_span(single)) else ""
    return extremes_words(f"the share of {step} in which a component hurt", found, "%", end=beside)


def _sentence(part: ModelStack, table: pd.DataFrame) -> str:
    most = table.sort_values("hurt", ascending=False).iloc[0]
    least = table.sort_values("hurt").iloc[0]
    last = "never" if most["last"] < 0 else f"last at update {most['last']:,.0f}"
    return (
        f"{part.label}: {most['name']} hurt most often, in {most['hurt']:.0%} of the steps ({last}), {least['name']} "
        f"least, in {least['hurt']:.0%}"
    )


def _chart(table: pd.DataFrame, step: str) -> dict[str, Any]:
    order = {name: place for place, name in enumerate(_NAMES.values())}
    table = table.sort_values("name", key=lambda names: names.map(order)).rename(columns={"hurt": "value"}).round(4)
    tooltip = tips(
        "name:N|component",
        "value:Q|hurt, as a sum|.1%",
        "parameters:Q|single parameters|.1%",
        "last:Q|last at update|,.0f",
        "largest:Q|largest rise, nats|.3g",
    )
    single = draw(
        "point",
        table.assign(value=table["parameters"], hurt=table["value"]),
        filled=False,
        size=55,
        strokeWidth=1.6,
        stroke="var(--soft)",
        tooltip=[*tips("name:N|component", "hurt:Q|hurt, as a sum|.1%"), *tooltip[2:]],
    )
    return interval_dots(
        table,
        {"color": Constant("var(--above)")},
        row="name",
        title=f"share of {step} that hurt",
        domain=[0, max(0.6, float(table[["high", "parameters"]].max().max()))],
        nice=False,
        format="%",
        size=60,
        more=[single],
        tooltip=tooltip,
        step=21,
        dim=False,
    )


HURTING = DeclaredFigure(
    name="dynamics/hurting",
    id="allocation-hurting",
    question="Which components hurt, and how often?",
    how_to_read=(
        "Filled: the share of steps in which a component, summed over all layers, raised the loss. Hollow: the "
        "share of its single parameters that did so in an average step. A component may help in every step while "
        "half of its parameters hurt.",
        "Only many examples separate single parameters from noise: check how far the two halves agree.",
        "The data also has the last step in which a component hurt, its largest rise of the loss, and steps "
        "without any change.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_HURTING.name, ALLOCATION_RELIABILITY.name),
    findings=("dynamics:L1", "dynamics:V6"),
    draw=_hurting,
)
