"""Distances between the models of a study, from the samples that measuring left."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infoflow.flow import PairMeasure, SampleKey, TokenSample, compare_samples
from infoflow.foundation import current_display
from infoflow.results import Column

from ._jobs import Job, StudyJobs, model_pairs
from ._measures import pair_measures
from ._workbench import Part, stacked

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
    """Tables of all pairs: two objectives of one seed, and two seeds of one objective; each pair is a part."""
    measures, pairs = pair_measures(jobs.plan.analysis), list(model_pairs(jobs.plan))
    schemas = {measure.name: measure.table.with_keys(*PAIR_KEYS) for measure in measures}
    parts: list[Part] = []
    with current_display().progress("Comparing models", len(pairs), "pairs") as progress:
        for pair in pairs:
            key = jobs.pair_key(*pair)
            parts.append(jobs.bench.tables("compared", key, schemas, lambda pair=pair: _compare(jobs, *pair)))
            progress.advance(1)
    return stacked(parts)


def _compare(jobs: StudyJobs, first: Job, second: Job) -> Part:
    a, b = (
        Compared(
            keys={"model": job.model, "objective": job.objective, "seed": job.seed},
            trained=job.trained,
            samples=jobs.samples(job),
        )
        for job in (first, second)
    )
    return compare_pair(a, b, pair_measures(jobs.plan.analysis))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """A measured model on its way into comparisons."""

    keys: dict[str, Any]  # model, objective, seed
    trained: bool
    samples: dict[SampleKey, TokenSample]


def compare_pairs(pairs: Sequence[tuple[Compared, Compared]], measures: Sequence[PairMeasure]) -> Part:
    """The tables of `measures` on every pair, with the columns `PAIR_KEYS`."""
    parts: list[Part] = []
    with current_display().progress("Comparing models", len(pairs), "pairs") as progress:
        for first, second in pairs:
            parts.append(compare_pair(first, second, measures))
            progress.advance(1)
    return stacked(parts)


def compare_pair(first: Compared, second: Compared, measures: Sequence[PairMeasure]) -> Part:
    """The tables of `measures` on two models, with the columns `PAIR_KEYS`."""
    keys = {f"{name}_{x}": value for x, one in (("a", first), ("b", second)) for name, value in one.keys.items()}
    tables = compare_samples(measures, first.samples, second.samples)
    return {name: frame.assign(**keys, trained=first.trained) for name, frame in tables.items()}
