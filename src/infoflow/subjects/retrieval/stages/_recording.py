"""Recordings of loss changes in retrieval trainings: which parts learned to answer, and whether a training records."""

import dataclasses
from pathlib import Path

from infoflow.foundation import digest
from infoflow.subjects.allocation.measures import TABLES, LossChangeRecorder, RecordConfig, evaluation_set
from infoflow.subjects.allocation.stages import is_begun_with

from ..models import RetrievalModel, retrieval_anatomy
from ._retrieval_arms import ArmModel

RECORDED = "reading-recorded"  # result cache stage of recordings
_VERSION = 1  # increase when the same plan records differently
_PASS = 1024  # padded query tokens per pass: each query is read with several passages


def is_recording_asked(arm: ArmModel) -> bool:
    """Whether the plan requests a recording of this model: only plain variants are recorded."""
    return arm.models.plan.retrieval.allocation_tokens > 0 and not arm.variant


def is_recorded(arm: ArmModel) -> bool:
    """Whether the recording is complete."""
    return arm.models.bench.done(RECORDED, recording_key(arm))


def recording_key(arm: ArmModel) -> str:
    """Key of everything that the recording of a training depends on."""
    asked, parts = arm.models.plan.retrieval, arm.models.plan.dynamics.parts
    config = _config(arm)
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in config.untold}
    tables = [[table.name, table.version] for table in TABLES]
    return digest([_VERSION, tables, arm.key, settings, parts, asked.allocation_tokens, asked.allocation_negatives])


def arm_recorders(arm: ArmModel, model: RetrievalModel, folder: Path) -> list[LossChangeRecorder]:
    r"""The hook for a training in `folder`: none if the plan requests none or the training started without it.

    $$ A_g = \sum_t \sum_{i \in g} Δ_{t,i} \int_0^1 \partial_i L(θ_t + sΔ_t)\, ds $$

    L is −log p(y|x) per masked token of a fixed sample of training queries, each read with the passage that answers it,
    passages found by BM25 and the null passage. The variant's own search would depend on weights, so that its loss
    would jump at every build of the index. Groups are those of `retrieval_anatomy`.

    Source: [@lan2019lca; @guu2020realm].
    """
    if not is_recording_asked(arm) or not is_begun_with(folder, recording_key(arm), is_recorded(arm)):
        return []
    asked, parts = arm.models.plan.retrieval, arm.models.plan.dynamics.parts
    objective = dataclasses.replace(arm.objective, fixed_negatives=asked.allocation_negatives)
    sample = evaluation_set("train", objective, arm.matter.queries, asked.allocation_tokens, parts, micro_tokens=_PASS)
    out = arm.models.bench.path(RECORDED, recording_key(arm))
    return [LossChangeRecorder([sample], retrieval_anatomy(model), _config(arm), out)]


def _config(arm: ArmModel) -> RecordConfig:
    """The study's recorder settings, except for the most expensive ones."""
    plan = arm.models.plan
    return dataclasses.replace(
        plan.dynamics.record(), every=plan.retrieval.allocation_every, parameters=False, check_rules=False
    )
