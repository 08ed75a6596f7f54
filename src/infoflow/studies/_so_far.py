"""`so_far`: the run of what is done of a study that is going on, or was stopped."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from infoflow.foundation import UserError
from infoflow.report import check_replaceable
from infoflow.results import RunFolder

from ._clock import seconds_before
from ._derived import write_derived
from ._graph import graph
from ._plan import StudyPlan
from ._study_facts import study_facts
from .stages import AbstractStage, Check, MeasureModel, Train
from .stages._check import write_tables

if TYPE_CHECKING:
    from ._run import Run

SO_FAR = "so-far"
_OF_THE_STUDY = ("kind", "plan", "anonymous", "command")  # entries of its run.json


def so_far(run: "Run") -> RunFolder:
    """See `Run.so_far`."""
    study = run.folder.read()
    if study.get("kind") != "study":
        raise UserError(f"{run.path} is no study: only a study tells what is done so far.")
    stages = graph(StudyPlan.from_json(study["plan"]), run.folder, prepared=True)
    works = [stage for stage in stages if not isinstance(stage, Check)]
    done = [stage for stage in works if stage.is_done()]
    if not something_to_tell(done):
        raise UserError(
            f"{run.path} must have a model that is measured before there is something to report. Got {len(done):,} of "
            f"{len(works):,} stages done. Wait, or give the command that began it again."
        )
    folder = RunFolder(run.path / SO_FAR)
    check_replaceable(folder.report)
    facts = study_facts(
        done, stages.of(Train)[0].models, study.get("timings", {}), stages.records(), seconds_before(run.folder)
    )
    entries: dict[str, Any] = {name: study[name] for name in _OF_THE_STUDY if name in study}
    title = f"{study.get('title') or run.path.name} (so far: {len(done):,} of {len(works):,} stages)"
    warnings = [_unfinished(works, done), *study.get("warnings", [])]
    folder.path.mkdir(exist_ok=True)
    folder.update(**entries, **facts, title=title, warnings=warnings)
    write_tables(folder, done, alone=True)
    write_derived(folder)
    return folder


def something_to_tell(stages: Iterable[AbstractStage]) -> bool:
    """Whether a model is measured."""
    return any(isinstance(stage, MeasureModel) and stage.is_done() for stage in stages)


def _unfinished(works: Sequence[AbstractStage], done: Sequence[AbstractStage]) -> str:
    """What is missing, by kind."""
    missing = Counter(stage.kind for stage in works) - Counter(stage.kind for stage in done)
    kinds = ", ".join(f"{kind} ({number:,})" for kind, number in missing.most_common()) or "nothing but the end"
    return f"The study is going on or was stopped. Missing: {kinds}. What is told here may change."
