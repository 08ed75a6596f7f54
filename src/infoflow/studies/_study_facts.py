"""Entries of run.json that describe a study, and the partial run of an unfinished study."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from infoflow.foundation import UserError, digest, file_digest
from infoflow.report import check_replaceable
from infoflow.results import RunFolder, Subject

from ._clock import seconds_before
from ._graph import Graph
from ._study_models import StudyModels
from .stages import AbstractStage, Check, MeasureModel, Train

SO_FAR = "so-far"
_OF_THE_STUDY = ("kind", "plan", "files", "anonymous", "provenance")  # entries of its run.json


def study_facts(
    stages: Sequence[AbstractStage],
    models: StudyModels,
    split: Mapping[str, Any],
    timings: Mapping[str, float],
    records: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Entries of run.json: the corpus, the models, and the cost.

    Args:
        stages: The finished stages.
        models: The models of the study.
        split: Result of `split_facts` for them.
        timings: Seconds by name; the total of all trainings is added.
        records: Usage of the stages, as in `Graph.records`.
        seconds: Seconds of all calls.
    """
    data = models.data
    trainings = [stage for stage in stages if isinstance(stage, Train)]
    trained = [{**Subject(recipe=stage.recipe).keys(), **stage.facts()} for stage in trainings]
    timings = {**timings, "training (sum over models)": sum(row["seconds"] for row in trained)}
    parts: dict[str, Any] = {"train": data.train, "validation": data.validation, "test": data.test}
    sizes = {name: len(part) for name, part in parts.items()} | {"analysed": len(data.analysed)}
    other = data.other_domain
    return {
        "corpus": {
            "name": models.plan.corpus.name,
            "digest": data.train.digest,
            "sentences": sum(len(part) for part in parts.values()),
            "words": int(sum(part.word_counts.sum() for part in parts.values())),
            "parts": sizes,
            "split": dict(split),
            **({} if other is None else {"other_domain": {"digest": other.digest, "sentences": len(other)}}),
        },
        "models": [{**row, "sha256": _weights_digest(models, row["model"])} for row in trained],
        "timings": {name: round(value, 1) for name, value in timings.items()},
        "stages": list(records),
        "seconds": round(seconds, 1),
        "failures": [asdict(failure) for stage in stages for failure in stage.failures()],
    }


def split_facts(models: StudyModels) -> dict[str, Any]:
    """How the corpus was split; all processes of a study call this at the same time."""
    return models.bench.facts("parts", digest([1, models.data.key]), models.data.parts.facts)


def _weights_digest(models: StudyModels, model: str) -> str:
    return file_digest(models.run.models / model / "model.safetensors")


def so_far(run: RunFolder, stages: Graph) -> RunFolder:
    """See `Run.so_far`; `stages` are the stages of the study in `run`."""
    works = [stage for stage in stages if not isinstance(stage, Check)]
    done = [stage for stage in works if stage.is_done()]
    if not any(isinstance(stage, MeasureModel) for stage in done):
        raise UserError(
            f"{run.path} cannot be reported before one of its models is measured. Got {len(done):,} of "
            f"{len(works):,} stages done. Wait, or run the command that started it again."
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
    """Missing stages, by kind."""
    missing = Counter(stage.kind for stage in works) - Counter(stage.kind for stage in done)
    kinds = ", ".join(f"{kind} ({number:,})" for kind, number in missing.most_common()) or "only the final steps"
    return f"The study is running or was stopped. Missing: {kinds}. Results may change."
