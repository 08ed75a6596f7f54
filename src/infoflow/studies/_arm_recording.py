"""Loss change allocation of an arm of retrieval: which parts of reader and retriever learned to answer."""

import dataclasses
from pathlib import Path

from infoflow.dynamics import TABLES, LossChangeRecorder, RecordConfig, evaluation_set
from infoflow.foundation import digest
from infoflow.retrieval import RetrievalModel, retrieval_anatomy

from ._begun_with import is_begun_with
from ._retrieval_arms import ArmModel

RECORDED = "reading-recorded"  # where the workbench keeps recordings
_VERSION = 1  # raise when the same plan records otherwise
_PASS = 1024  # padded tokens of queries in a pass: each is read with several passages


def is_recording_asked(arm: ArmModel) -> bool:
    """Whether the plan asks for a recording of this arm: of the plain ones."""
    return arm.models.plan.retrieval.allocation_tokens > 0 and not arm.variant


def is_recorded(arm: ArmModel) -> bool:
    """Whether nothing of the recording is missing."""
    return arm.models.bench.done(RECORDED, recording_key(arm))


def recording_key(arm: ArmModel) -> str:
    """What the recording of an arm's training depends on."""
    asked, parts = arm.models.plan.retrieval, arm.models.plan.dynamics.parts
    config = _config(arm)
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in config.untold}
    tables = [[table.name, table.version] for table in TABLES]
    return digest([_VERSION, tables, arm.key, settings, parts, asked.allocation_tokens, asked.allocation_negatives])


def arm_recorders(arm: ArmModel, model: RetrievalModel, folder: Path) -> list[LossChangeRecorder]:
    r"""The hook for a training in `folder`: none where the plan asks for none, or the training began without it.

    $$ A_g = \sum_t \sum_{i \in g} Δ_{t,i} \int_0^1 \partial_i L(θ_t + sΔ_t)\, ds $$

    L is −log p(y|x) per masked token of a fixed sample of training queries, each read with the passage that answers it,
    others by BM25 and the null passage: what the arm's own search finds depends on weights, so that its loss jumps from
    one build of the index to the next. Groups are those of `retrieval_anatomy`.

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
    """That of the study's models, but for what costs most."""
    plan = arm.models.plan
    return dataclasses.replace(
        plan.dynamics.record(), every=plan.retrieval.allocation_every, parameters=False, check_rules=False, lags=0
    )
