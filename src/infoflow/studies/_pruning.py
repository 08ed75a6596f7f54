"""Pruning as a stage of a study: learned gates, greedy choices, exactly k heads, and training from scratch.

Every point is a part of its own, keyed by the model, by how its heads are chosen, and by what it is scored on: a study
continues at the point where it was, and a plan that asks for more does only that. The published models stay as they
are: each piece prunes a copy.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.foundation import current_display
from infoflow.heads import Head, HeadSet
from infoflow.models import Model
from infoflow.pruning import PRUNED_HEADS, PRUNED_ROLES, PRUNING, point_tables, roles_left
from infoflow.results import TableSchema

from ._data import at_most
from ._pruning_pieces import STAGE, UNPRUNED, Curve, Place, curves, places, table_keys, too_many
from ._pruning_points import Point, pass_options, points
from ._workbench import Part, stacked

if TYPE_CHECKING:
    from ._jobs import Job, StudyJobs

_SCHEMAS = {schema.name: schema for schema in (PRUNING, PRUNED_HEADS, PRUNED_ROLES)}


def is_pruned(jobs: "StudyJobs", job: "Job") -> bool:
    """Whether nothing of the job's piece is missing."""
    if job.piece == UNPRUNED:
        return all(jobs.bench.done(STAGE, key) for key in _unpruned_keys(jobs, job).values())
    return all(_is_drawn(jobs, job, curve) for curve in _curves(jobs, job))


def pruned(jobs: "StudyJobs", job: "Job") -> None:
    """Do the job's piece, as far as it is not there."""
    before = _unpruned(jobs, job)
    full = before[PRUNING.name].set_index("metric")["value"].to_dict()
    for curve in _curves(jobs, job):
        _draw(jobs, job, curve, full)


def _draw(jobs: "StudyJobs", job: "Job", curve: Curve, full: dict[str, float]) -> None:
    """The missing points of a curve."""
    for k in too_many(jobs, job, curve):
        current_display().warn(f"{job.model} has fewer heads than {k} in {curve.scope}: {curve.method} leaves it out.")
    every = _places(jobs, job, curve)
    wanted = [place for place in every if jobs.bench.missing(STAGE, table_keys(jobs, curve, place.origin))]
    if not wanted:
        return
    for point in points(jobs, job, curve, wanted, every):
        keys = table_keys(jobs, curve, point.place.origin)
        jobs.bench.each_table(
            STAGE, keys, _SCHEMAS, lambda names, point=point: _tables(jobs, job, curve, point, full, names)
        )


def _is_drawn(jobs: "StudyJobs", job: "Job", curve: Curve) -> bool:
    there = places(jobs, job, curve)
    return there is not None and all(
        jobs.bench.done(STAGE, key) for place in there for key in table_keys(jobs, curve, place.origin).values()
    )


def _curves(jobs: "StudyJobs", job: "Job") -> list[Curve]:
    return [curve for curve in curves(jobs.plan, job.objective) if curve.piece == job.piece]


def _places(jobs: "StudyJobs", job: "Job", curve: Curve) -> list[Place]:
    every = places(jobs, job, curve)
    assert every is not None, "its sweep comes before"
    return every


def pruned_tables(jobs: "StudyJobs", pruning: "list[Job]") -> Iterator[tuple[TableSchema, pd.DataFrame]]:
    """The tables of all pieces with the keys of their models."""
    parts: list[Part] = []
    for job in pruning:
        model = {"model": job.model, "objective": job.objective, "seed": job.seed, "trained": True}
        parts += [{name: frame.assign(**model) for name, frame in part.items()} for part in _parts(jobs, job)]
    tables = stacked(parts)
    for name, schema in _SCHEMAS.items():
        if name in tables:
            yield schema, tables[name]


def _parts(jobs: "StudyJobs", job: "Job") -> Iterator[Part]:
    """The points of a piece's curves in their places, each curve behind the roles of the unpruned model."""
    before = jobs.bench.read_each(STAGE, _unpruned_keys(jobs, job))
    if job.piece == UNPRUNED:
        scores = before[PRUNING.name]
        yield {PRUNING.name: scores.assign(baseline=scores["value"])}
        return
    for curve in _curves(jobs, job):
        every = _places(jobs, job, curve)
        if every and PRUNED_ROLES.name in table_keys(jobs, curve, ""):
            yield {PRUNED_ROLES.name: before[PRUNED_ROLES.name].assign(method=curve.method, draw=curve.draw(job))}
        for place in every:
            part = jobs.bench.read_each(STAGE, table_keys(jobs, curve, place.origin))
            # Two points may have the same heads, and so one part.
            part[PRUNING.name] = part[PRUNING.name].assign(setting=place.setting)
            yield {name: frame.assign(point=place.index) for name, frame in part.items()}


def _unpruned_keys(jobs: "StudyJobs", job: "Job") -> dict[str, str]:
    return table_keys(jobs, None, jobs.train_key(job))


def _unpruned(jobs: "StudyJobs", job: "Job") -> Part:
    """Scores and roles of the converged model; there is nothing that its scores are compared with."""

    def compute(names: list[str]) -> Part:
        model, keys = jobs.load(job), {"method": UNPRUNED, "draw": job.seed, "point": -1}
        current_display().note(f"Scoring {job.model} before any head goes.")
        part: Part = {}
        if {PRUNING.name, PRUNED_HEADS.name} & set(names):
            unknown = dict.fromkeys(_metrics(jobs, job), float("nan"))
            part |= _scores(jobs, job, model, frozenset(), {**keys, "setting": 0.0}, unknown)
        if PRUNED_ROLES.name in names:
            part[PRUNED_ROLES.name] = _roles(jobs, job, model, frozenset(), keys)
        return part

    return jobs.bench.each_table(STAGE, _unpruned_keys(jobs, job), _SCHEMAS, compute)


def _tables(
    jobs: "StudyJobs", job: "Job", curve: Curve, point: Point, full: dict[str, float], names: list[str]
) -> Part:
    keys = {"method": curve.method, "draw": curve.draw(job), "point": point.place.index}
    part: Part = {}
    if {PRUNING.name, PRUNED_HEADS.name} & set(names):
        more = {**keys, "setting": point.place.setting, "undecided": point.undecided}
        asked = full if PRUNING.name in names else {}  # which heads are left takes no reading
        part |= _scores(jobs, job, point.model, point.removed, more, asked, point.learned)
        if asked:
            _tell(job, part[PRUNING.name])
    if PRUNED_ROLES.name in names:
        part[PRUNED_ROLES.name] = _roles(jobs, job, point.model, point.removed, keys)
    return part


def _metrics(jobs: "StudyJobs", job: "Job") -> list[str]:
    translates = jobs.plan.objective(job.objective).needs_translation
    return ["loss", "bleu"] if translates and jobs.plan.pruning.metric == "bleu" else ["loss"]


def _scores(
    jobs: "StudyJobs",
    job: "Job",
    model: Model,
    removed: HeadSet,
    keys: Mapping[str, Any],
    full: dict[str, float],
    learned: Mapping[Head, tuple[float, float]] | None = None,
) -> Part:
    beams, options = jobs.plan.analysis.beams, pass_options(jobs, job)
    return point_tables(model, _held_out(jobs), removed, keys, full, learned=learned, beams=beams, options=options)


def _roles(jobs: "StudyJobs", job: "Job", model: Model, removed: HeadSet, keys: Mapping[str, Any]) -> pd.DataFrame:
    sentences = at_most(jobs.data.analysed, jobs.plan.pruning.role_sentences)
    return roles_left(model, sentences, removed, keys, options=pass_options(jobs, job), ranks_from=jobs.data.train)


def _held_out(jobs: "StudyJobs") -> Corpus:
    return at_most(jobs.data.analysed, jobs.plan.pruning.score_sentences)


def _tell(job: "Job", rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    scores = ", ".join(f"{row.metric} {row.value:.3g} (was {row.baseline:.3g})" for row in rows.itertuples())
    kept = f"{first['kept']} of {first['total']} heads"
    current_display().note(f"{job.model}, {first['method']}, point {first['point']}: {kept}, {scores}")
