"""What the summary and the methods of a study's report need beside the tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from infoflow.foundation import digest, file_digest
from infoflow.results import Subject

from ._study_models import StudyModels
from .stages import AbstractStage, Train


def study_facts(
    stages: Sequence[AbstractStage],
    models: StudyModels,
    split: Mapping[str, Any],
    timings: Mapping[str, float],
    records: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Entries of run.json: the corpus, the models, what it took.

    Args:
        stages: Those that are done.
        models: Of the study.
        split: What `split_facts` tells of them.
        timings: Seconds by name, of which that of all trainings is added.
        records: What stages took, as `Graph.records` has it.
        seconds: Of all calls.
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
    """How the corpus was cut into parts; every process of a study asks at the same time."""
    return models.bench.facts("parts", digest([1, models.data.key]), models.data.parts.facts)


def _weights_digest(models: StudyModels, model: str) -> str:
    return file_digest(models.run.models / model / "model.safetensors")
