"""How many examples a probe needs: accuracy when trained on fewer, with untrained models as the control."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from infoflow.probing import PROBE_SCORES

from .._figure import Panel, ReportFigure
from .._in_words import Candidate, clear_cases, extremes_words
from .._numbers import estimate_text, number
from .._samples import Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import amount, bounded, finished, tips
from ..forms._hollow import HOLLOW
from ..forms._lines import SHARE, control_lines, lines, looks_of
from ..forms._names import names_above
from ..forms._span import span
from ._methods import PROBES
from ._rows import (
    all_examples,
    any_trained,
    best_layer,
    case_name,
    left_out_note,
    most_layered,
    of,
    one_probe,
    task_label,
    tasks_of,
)

_HEIGHT = 230
_TOLD = 5  # tasks that the sentence names


def examples_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per task; None if probes were only trained on all examples."""
    own = one_probe(of(frame, metric="accuracy", words="all", labels="task"))
    sizes = own.groupby([own["task"].astype(str), "series"])["training"].nunique() if "training" in own else pd.Series()
    if not any_trained(own) or not bool((sizes > 1).any()) or "share" not in own:
        return None
    own = own[own["task"].astype(str).isin(set(sizes[sizes > 1].index.get_level_values(0)))]
    found = {task: _at_best(of(own, task=task), models) for task in tasks_of(own)}
    shown = most_layered(own, list(found))
    data = pd.concat([_curves(rows).assign(task=task) for task, rows in found.items()], ignore_index=True)
    seeds = int(data["seeds"].max())
    bands = (
        f"means over {seeds} seeds, 95% intervals over seeds and sentences"
        if seeds > 1
        else f"95% intervals over sentences, {HOLLOW}"
    )
    return ReportFigure(
        id="probe-examples",
        question="How many examples does a probe need?",
        answer=_sentences({task: found[task] for task in shown}, models),
        words=_words({task: found[task] for task in shown}, models),
        panels=[Panel(spec=_chart(data[data["task"] == task], models), title=task_label(task)) for task in shown],
        caption=f"Bands: {bands}. Each model at the layer that is its best with all examples, the untrained one at "
        f"the same.{left_out_note(found, shown)}",
        how_to_read=[
            "Across: training examples of the probe, each step the same factor. Up: accuracy on the same test part.",
            "Dashed grey: an untrained model at the same layer. With many examples a probe may learn from random "
            "vectors nearly as well; what training has put within easy reach shows where examples are few. It would "
            "be surprising if the gap were the same everywhere.",
        ],
        method=PROBES,
        data=data,
        tables=(PROBE_SCORES.name,),
        findings=("probing:P-2",),
    )


def _at_best(own: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Each line's rows at the layer that is best with all examples."""
    whole = all_examples(own)
    bests = [best_layer(whole, series.key) for series in models.present(whole[whole["trained"]])]
    parts = [own[(own["series"] == best.series) & (own["layer"] == best.layer)] for best in bests if best is not None]
    return pd.concat(parts, ignore_index=True)


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval for each line and share of the examples."""
    found: list[dict[str, Any]] = []
    for (series, trained, share), own in rows.groupby(["series", "trained", "share"], sort=True):  # type: ignore[misc]
        estimate = Samples.of(own).estimate()
        group = "trained" if trained else "untrained"
        keys = {"series": series, "group": group, "share": float(share), "layer": int(own["layer"].iloc[0])}
        examples = int(own["training"].median())
        found.append({**keys, "training": examples, **asdict(estimate), "shown": estimate_text(estimate)})
    return pd.DataFrame(found)


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    rows = bounded(rows, SHARE)
    series = models.present(rows)
    ends = [int(rows["training"].min()), int(rows["training"].max())]
    at = {
        "x": amount("x", "training", "training examples", ends, type="log", zero=None, format="~s"),
        "y": amount("y", "value", "accuracy", span(rows[["low", "value", "high"]], margin=0.06, flat=0.05)),
    }
    trained, untrained = (rows[rows["group"] == group] for group in ("trained", "untrained"))
    tooltip = tips("series:N|model", "training:Q|examples|,", "layer:Q|layer", "shown:N|accuracy")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "untrained", "var(--control)")] if len(untrained) else []
    drawn = lines(trained, at, looks_of(series), size=34, touch=0, tooltip=tooltip)
    return finished([*control_lines(untrained, at), *drawn, names_above(names)], _HEIGHT)


def _sentences(found: dict[str, pd.DataFrame], models: ShownModels) -> list[str]:
    """The margin of trained over untrained models with the fewest and with all examples, and where the two differ."""
    gaps = {task: _gaps(rows, models) for task, rows in found.items()}
    gaps = {task: own for task, own in gaps.items() if own}
    if not gaps:
        return []
    told = [
        f"{task_label(task)} {_ends([few for _, few, _ in own])} (with all {_ends([whole for *_, whole in own])})"
        for task, own in list(gaps.items())[:_TOLD]
    ]
    every = [(few - whole).estimate() for own in gaps.values() for _, few, whole in own]
    larger, smaller = (sum(gap.sign == sign for gap in every) for sign in (1, -1))
    return [
        f"With {_fewest(found):,} examples, accuracy is above that of untrained models by: {'; '.join(told)}.",
        f"The gap is clearly larger with few examples in {larger} of {len(every)} cases (tasks and models), clearly "
        f"smaller in {smaller}.",
    ]


def _words(found: dict[str, pd.DataFrame], models: ShownModels) -> str:
    """The gain from training with the fewest examples."""
    told = [
        Candidate.held_out(case_name(task, series.label), few)
        for task, rows in found.items()
        for series, few, _ in _gaps(rows, models)
    ]
    what = f"with {_fewest(found):,} examples, the gain in accuracy over an untrained model"
    return extremes_words(what, told, end=clear_cases(told))


def _fewest(found: dict[str, pd.DataFrame]) -> int:
    return int(min(rows["training"].min() for rows in found.values()))


def _gaps(rows: pd.DataFrame, models: ShownModels) -> list[tuple[Series, Samples, Samples]]:
    """The gain from training with the fewest and with all examples, per line with an untrained twin."""
    found = []
    for series in models.present(rows):
        own = rows[rows["series"] == series.key]
        shares = sorted(own["share"].unique())
        few, whole = (_gap(own[own["share"] == share]) for share in (shares[0], shares[-1]))
        if few and whole and len(shares) > 1:
            found.append((series, few, whole))
    return found


def _gap(rows: pd.DataFrame) -> Samples:
    trained, untrained = (Samples.of(rows[rows["trained"] == which]) for which in (True, False))
    return trained - untrained


def _ends(gaps: list[Samples]) -> str:
    """One gap with its interval, or the smallest and the largest of several models."""
    estimates = sorted((gap.estimate() for gap in gaps), key=lambda one: one.value)
    if len(estimates) == 1:
        return estimate_text(estimates[0]).replace(" (", ", ").removesuffix(")")
    return f"{number(estimates[0].value, 2)} to {number(estimates[-1].value, 2)}"
