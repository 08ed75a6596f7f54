"""The sentences above the figures of probes: for which task and model a number is highest, and for which lowest."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from .._curves import samples_at
from .._in_words import Candidate, clear_cases, extreme, extremes_words, sentence
from .._samples import Estimate, Samples
from .._series import Series
from .._shown_models import ShownModels
from ._rows import Best, alike_text, best_layer, of, task_label, tasks_of


class Case(NamedTuple):
    """A task of a model, and the layer that it is read best from."""

    rows: pd.DataFrame  # the task's, of all models
    task: str
    series: Series
    best: Best

    @property
    def name(self) -> str:
        """As it stands behind a number."""
        return case_name(self.task, self.series.label)

    @property
    def samples(self) -> Samples:
        """Of the best layer."""
        return samples_at(self.rows, self.series.key, self.best.layer)

    @property
    def over_untrained(self) -> Estimate | None:
        """How far the best layer is above the best of an untrained model, whichever it is; None without one."""
        other = best_layer(self.rows, self.series.key, trained=False)
        if other is None:
            return None
        return (self.samples - samples_at(self.rows, self.series.key, other.layer, trained=False)).estimate()


def case_name(task: str, label: str) -> str:
    """`for chunks in masked LM`."""
    return f"for {task_label(task)} in {label}"


def cases_of(own: pd.DataFrame, models: ShownModels) -> list[Case]:
    """Every task in every trained model, in reading order."""
    found = []
    for task in tasks_of(own):
        rows = of(own, task=task)
        bests = [(series, best_layer(rows, series.key)) for series in models.present(rows[rows["trained"]])]
        found += [Case(rows, task, series, best) for series, best in bests if best is not None]
    return found


def told_of(
    what: str, cases: Sequence[Case], number: Callable[[Case], Estimate | None], above: float | None = None
) -> str:
    """Where a number of cases is highest and lowest, and in how many it is clearly `above` what stands for nothing."""
    told = [Candidate(case.name, estimate) for case in cases if (estimate := number(case)) is not None]
    return extremes_words(what, told, end="" if above is None else clear_cases(told, above))


def gain_words(score: str, cases: Sequence[Case]) -> str:
    """How far best layers are above those of untrained models; without any, above the majority class."""
    if any(case.over_untrained is not None for case in cases):
        return told_of(
            f"the gain in {score} over an untrained model's best layer", cases, lambda case: case.over_untrained, 0.0
        )
    return told_of(f"the gain in {score} over the majority class", cases, _over_baseline, 0.0)


def _over_baseline(case: Case) -> Estimate:
    own = case.rows
    floor = float(own.loc[(own["series"] == case.series.key) & own["trained"], "baseline"].mean())
    best = case.best.estimate
    return Estimate(
        value=best.value - floor, low=best.low - floor, high=best.high - floor, seeds=best.seeds, count=best.count
    )


def place_words(cases: Sequence[Case]) -> str:
    """Which task is best read highest in the network, and which lowest; layers that are not told apart are one span."""
    spans = {case.name: case.best for case in cases}
    found = [Candidate(name, _span(best)) for name, best in spans.items()]
    top, bottom = extreme(found), extreme(found, least=True)
    if top is None or bottom is None:
        return ""

    def told(one: Candidate) -> str:
        best = spans[one.name]
        return f"{best.layer}{alike_text(best)}"

    if top.candidate is bottom.candidate:
        return sentence(f"the best layer is {told(top.candidate)} {top.candidate.name}{top.note}")
    if bottom.candidate.name in top.alike:
        return sentence(
            f"the best layer is {told(top.candidate)} {top.candidate.name}, and not clearly another elsewhere"
        )
    parts = [
        f"{how} {end.candidate.name}, {told(end.candidate)}{end.note}"
        for how, end in (("highest", top), ("lowest", bottom))
    ]
    return sentence(f"the best layer is {'; '.join(parts)}")


def _span(best: Best) -> Estimate:
    """The best layer, from the lowest to the highest that is not told apart from it."""
    layers = (best.layer, *best.alike)
    return Estimate(value=best.layer, low=min(layers), high=max(layers), seeds=1, count=0)
