"""Distances between the models of a study, from the samples that measuring left."""

from collections.abc import Iterator
from itertools import combinations

import pandas as pd

from infoflow.flow import compare_samples
from infoflow.foundation import current_display
from infoflow.results import Column

from ._jobs import Job, StudyJobs, study_jobs
from ._measures import pair_measures
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
    frames: dict[str, list[pd.DataFrame]] = {}
    pairs = list(model_pairs(jobs))
    samples = {job: jobs.samples(job) for pair in pairs for job in pair}
    with current_display().progress("Comparing models", len(pairs), "pairs") as progress:
        for first, second in pairs:
            for name, frame in compare_samples(
                pair_measures(jobs.plan.analysis), samples[first], samples[second]
            ).items():
                frames.setdefault(name, []).append(frame.assign(**_keys(first, second)))
            progress.advance(1)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}


def model_pairs(jobs: StudyJobs) -> Iterator[tuple[Job, Job]]:
    """Pairs of measured models that differ in the objective or in the seed, not in both."""
    measured = [job for job in study_jobs(jobs.plan) if job.kind == "measure"]
    for first, second in combinations(sorted(measured, key=lambda job: (job.objective, job.seed)), 2):
        same = (first.objective == second.objective) + (first.seed == second.seed)
        if first.trained == second.trained and same == 1:
            yield first, second


def _keys(first: Job, second: Job) -> dict[str, str | int | bool]:
    keys: dict[str, str | int | bool] = {}
    for side, job in (("a", first), ("b", second)):
        keys |= {f"model_{side}": job.model, f"objective_{side}": job.objective, f"seed_{side}": job.seed}
    return keys | {"trained": first.trained}
