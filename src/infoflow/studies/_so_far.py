"""`so_far`: the run of what is done of a study that is going on, or was stopped."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infoflow.foundation import UserError
from infoflow.report import check_replaceable
from infoflow.results import RunFolder

from ._clock import seconds_before
from ._graph import Graph
from ._study_facts import split_facts, study_facts
from .stages import AbstractStage, Check, MeasureModel, Train

SO_FAR = "so-far"
_OF_THE_STUDY = ("kind", "plan", "anonymous", "provenance")  # entries of its run.json


def so_far(run: RunFolder, stages: Graph) -> RunFolder:
    """See `Run.so_far`; `stages` are those of the study in `run`."""
    works = [stage for stage in stages if not isinstance(stage, Check)]
    done = [stage for stage in works if stage.is_done()]
    if not any(isinstance(stage, MeasureModel) for stage in done):
        raise UserError(
            f"{run.path} must have a model that is measured before there is something to report. Got {len(done):,} of "
            f"{len(works):,} stages done. Wait, or give the command that began it again."
        )
    folder = RunFolder(run.path / SO_FAR)
    check_replaceable(folder.report)
    study, models = run.read(), stages.of(Train)[0].models
    timings = study.get("timings", {})
    facts = study_facts(done, models, split_facts(models), timings, stages.records(), seconds_before(run))
    entries: dict[str, Any] = {name: study[name] for name in _OF_THE_STUDY if name in study}
    command = entries.get("provenance", {}).get("command", "")
    title = f"{study.get('title') or run.path.name} (so far: {len(done):,} of {len(works):,} stages)"
    warnings = [_unfinished(works, done), *study.get("warnings", [])]
    folder.path.mkdir(exist_ok=True)
    folder.update(**entries, **facts, title=title, command=command, warnings=warnings)
    Check(folder=folder, stages=done).run()
    return folder


def _unfinished(works: Sequence[AbstractStage], done: Sequence[AbstractStage]) -> str:
    """What is missing, by kind."""
    missing = Counter(stage.kind for stage in works) - Counter(stage.kind for stage in done)
    kinds = ", ".join(f"{kind} ({number:,})" for kind, number in missing.most_common()) or "nothing but the end"
    return f"The study is going on or was stopped. Missing: {kinds}. What is told here may change."
