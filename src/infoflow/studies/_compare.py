"""Distances between the models of a study, from the samples that measuring left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from infoflow.flow import PairMeasure, SampleKey, TokenSample, compare_samples
from infoflow.foundation import current_display
from infoflow.results import Column

from ._jobs import Job, StudyJobs, base_objective, study_jobs
from ._measures import pair_measures
from ._plan import StudyPlan
from ._workbench import Part

_SIDES = (("a", "first"), ("b", "second"))
PAIR_KEYS = (
    *(
        Column(name=f"model_{x}", dtype="string", unit="", description=f"name of the {which} model")
        for x, which in _SIDES
    ),
    *(
        Column(name=f"objective_{x}", dtype="string", unit="", description=f"objective of the {which} model")
        for x, which in _SIDES
    ),
    *(
        Column(name=f"seed_{x}", dtype="int64", unit="", description=f"seed of the {which} model")
        for x, which in _SIDES
    ),
    Column(name="trained", dtype="bool", unit="", description="false: both models as initialised (the control)"),
)


def compared(jobs: StudyJobs) -> Part:
    """Tables of all pairs: two objectives of one seed, and two seeds of one objective."""
    measures = pair_measures(jobs.plan.analysis)
    schemas = {measure.name: measure.table.with_keys(*PAIR_KEYS) for measure in measures}
    return jobs.bench.tables("compared", jobs.compare_key, schemas, lambda: _compare(jobs))


def _compare(jobs: StudyJobs) -> Part:
    pairs = list(model_pairs(jobs.plan))
    keys = {job: {"model": job.model, "objective": job.objective, "seed": job.seed} for pair in pairs for job in pair}
    models = {job: Compared(keys=keys[job], trained=job.trained, samples=jobs.samples(job)) for job in keys}
    return compare_pairs([(models[a], models[b]) for a, b in pairs], pair_measures(jobs.plan.analysis))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """A measured model on its way into comparisons."""

    keys: dict[str, Any]  # model, objective, seed
    trained: bool
    samples: dict[SampleKey, TokenSample]


def compare_pairs(pairs: Sequence[tuple[Compared, Compared]], measures: Sequence[PairMeasure]) -> Part:
    """The tables of `measures` on every pair, with the columns `PAIR_KEYS`."""
    frames: dict[str, list[pd.DataFrame]] = {}
    with current_display().progress("Comparing models", len(pairs), "pairs") as progress:
        for first, second in pairs:
            keys = {
                f"{name}_{x}": value for x, one in (("a", first), ("b", second)) for name, value in one.keys.items()
            }
            for name, frame in compare_samples(measures, first.samples, second.samples).items():
                frames.setdefault(name, []).append(frame.assign(**keys, trained=first.trained))
            progress.advance(1)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}


def model_pairs(plan: StudyPlan) -> Iterator[tuple[Job, Job]]:
    """Pairs of measured models that differ in the objective or in the seed, not in both.

    A variant of an objective is compared with that objective only.
    """
    measured = [job for job in study_jobs(plan) if job.kind == "measure"]
    for first, second in combinations(sorted(measured, key=lambda job: (job.objective, job.seed)), 2):
        same = (first.objective == second.objective) + (first.seed == second.seed)
        if first.trained == second.trained and same == 1 and _comparable(first.objective, second.objective):
            yield first, second


def _comparable(first: str, second: str) -> bool:
    plain = first == base_objective(first) and second == base_objective(second)
    return plain or first == second or base_objective(first) == base_objective(second)
