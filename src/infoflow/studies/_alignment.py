"""Each seed's masked LM aligned to the same seed's translation encoder."""

from pathlib import Path

import pandas as pd

from infoflow.alignment import (
    ALIGNMENT,
    ExplicitConfig,
    IdentityLinks,
    ImplicitConfig,
    Kind,
    LinkedSentences,
    align_implicit,
    align_with_controls,
    evaluate_alignment,
    linearly_aligned,
    transplanted,
)
from infoflow.foundation import current_display, digest
from infoflow.models import Model
from infoflow.results import Column

from ._data import at_most
from ._jobs import Job, StudyJobs
from ._plan import AlignmentPlan
from ._scores import bleu_scores

SOURCE, TARGET = "masked-lm", "translation"
SEED = Column(name="seed", dtype="int64", unit="", description="seed of both models")

_VERSION = 1  # raise when the same plan aligns otherwise


def aligned(jobs: StudyJobs) -> pd.DataFrame | None:
    """The table `alignment` of all seeds; None where the plan asks for none or lacks one of the two models."""
    plan = jobs.plan
    if not plan.alignment.on or not {SOURCE, TARGET} <= set(plan.objectives):
        return None
    return pd.concat([_of_seed(jobs, seed).assign(seed=seed) for seed in plan.seeds], ignore_index=True)


def _of_seed(jobs: StudyJobs, seed: int) -> pd.DataFrame:
    key, schemas = _key(jobs, seed), {ALIGNMENT.name: ALIGNMENT}
    part = jobs.bench.tables("aligned", key, schemas, lambda: {ALIGNMENT.name: _align(jobs, seed, key)})
    return part[ALIGNMENT.name]


def _key(jobs: StudyJobs, seed: int) -> str:
    analysis = jobs.plan.analysis
    models = [jobs.train_key(job) for job in _jobs_of(seed)]
    looked_at = [analysis.sentences, analysis.bleu_sentences, analysis.beams]
    return digest([_VERSION, ALIGNMENT.version, models, jobs.plan.alignment, looked_at])


def _jobs_of(seed: int) -> tuple[Job, Job]:
    return Job(kind="train", objective=SOURCE, seed=seed), Job(kind="train", objective=TARGET, seed=seed)


def _align(jobs: StudyJobs, seed: int, key: str) -> pd.DataFrame:
    source, target = (jobs.load(job) for job in _jobs_of(seed))
    current_display().note(f"Aligning {source.name} to {target.name}.")
    plan, folder, data = jobs.plan.alignment, jobs.bench.path("alignments", key), jobs.data
    config, sentences = _explicit(plan, seed), at_most(data.train, plan.sentences)
    encoders = align_with_controls(source, target, sentences, folder, config=config)
    translations: list[tuple[Kind, Model]] = []
    if plan.pairs:
        tuned = _implicit(source, target, jobs, folder / "implicit", seed)
        linked = LinkedSentences(tuned, target, sentences, IdentityLinks(), max_length=config.max_length)
        encoders["implicit"] = linearly_aligned(tuned, target, linked, config)
        translations = [("unaligned", transplanted(source, target)), ("implicit", tuned), ("target", target)]
    held_out = at_most(data.analysed, plan.held_out)
    scores = evaluate_alignment(encoders, source, target, held_out)
    return pd.concat([scores, *(_bleu(jobs, kind, model, source, target) for kind, model in translations)])


def _explicit(plan: AlignmentPlan, seed: int) -> ExplicitConfig:
    return ExplicitConfig(
        learning_rate=plan.learning_rate, batch_sentences=plan.batch_sentences, seed=seed, save_every=plan.save_every
    )


def _implicit(source: Model, target: Model, jobs: StudyJobs, out: Path, seed: int) -> Model:
    plan = jobs.plan.alignment
    config = ImplicitConfig(
        learning_rate=plan.learning_rate,
        batch_sentences=plan.batch_sentences,
        max_length=jobs.plan.model.positions,
        seed=seed,
        save_every=plan.save_every,
    )
    return align_implicit(source, target, at_most(jobs.data.train, plan.pairs), out, config)


def _bleu(jobs: StudyJobs, kind: Kind, model: Model, source: Model, target: Model) -> pd.DataFrame:
    """BLEU of an encoder under the target's decoder."""
    plan = jobs.plan.analysis
    scores = bleu_scores(model, jobs.data.test, plan.bleu_sentences, plan.beams, "test")
    top = len(model.anatomy.stack("encoder").layers)
    keys = {"kind": kind, "states": "encoder", "layer": top, "source_model": source.name, "target_model": target.name}
    return ALIGNMENT.conform(scores.drop(columns="split").assign(**keys))
