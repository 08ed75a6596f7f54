"""Loss change allocation, recorded during a training or in a repetition of it, and compared between corpora."""

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings import FINDINGS, FINDINGS_TABLE, evaluate
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import UserError, atomic_write, current_display
from infoflow.models import load_model
from infoflow.report import check_output, write_report
from infoflow.results import KEYS, TASK_SCORES, Column, Recipe, RunFolder
from infoflow.studies._result_cache import Part, ResultCache
from infoflow.studies._run import Run
from infoflow.studies._study import only_one
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractKept, AbstractStage, AbstractTableStage, OfRecipe
from infoflow.studies.stages._train import training_estimate

from ..measures import (
    ALLOCATION_CORPORA,
    ALLOCATION_GROUPS,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_SIMILARITY,
    TABLES,
    LossChangeRecorder,
    compare_corpora,
    compare_trainings,
    evaluation_set,
)

# A recording is keyed by the training and the settings of `[dynamics]`. A model whose training began without
# recording is trained again with the recorder; the published model remains that of the first training.


_NOTE = "recording.key"  # file in a training's folder: names the recording that began with the training
_VERSION = 1  # increase when the same plan records differently
_LATER = (ALLOCATION_HISTOGRAM.name,)  # tables that older recordings lack, which does not justify training again


@dataclass(frozen=True, kw_only=True, eq=False)
class Record(OfRecipe, AbstractKept):
    """The recording of one training."""

    kind = "record"
    named = "record {self.recipe.name}"
    with_training = True
    stored = "recorded"
    makes = TABLES

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Record]":
        if not models.plan.dynamics.on:
            return []
        trainings = [stage for stage in before if stage.kind == "train"]
        # A training that is repeated to keep checkpoints records as well.
        keeps = {stage.recipe: (stage.key,) for stage in before if stage.kind == "keep"}
        return [
            cls(models=models, recipe=stage.recipe, needs=(stage.key, *keeps.get(stage.recipe, ())))
            for stage in trainings
        ]

    @property
    def estimate(self) -> float:
        return training_estimate(self.recipe)

    def depends(self) -> list[Any]:
        plan = self.models.plan.dynamics
        settings = {k: v for k, v in dataclasses.asdict(plan).items() if k not in {"on", *plan.record().untold}}
        tables = [[t.name, t.version] for t in TABLES if t.name not in _LATER]
        return [_VERSION, tables, self.models.train_key(self.recipe), settings]

    def run(self) -> dict[str, Any]:
        """Train again with the recorder, unless the first training was recorded."""
        models, recipe = self.models, self.recipe
        if self.is_done():
            return {}
        current_display().note(f"Training {recipe.name} again to record its loss changes.")
        folder = models.bench.path("recording", self.key)
        models.train_into(recipe, folder, [self._recorder()], keep_last=1)
        if is_first():
            shutil.rmtree(folder)
        wait_for_all()
        return {}

    def tables(self) -> Part:
        part, known = self.cache.read(self.stored, self.content), self.plain_schemas()
        # earlier recordings call the beginning of a window `start`, now the name of another column
        renamed = {name: frame.rename(columns={"start": "begin"}) for name, frame in part.items() if name in known}
        return self._with_columns(renamed)

    def recorders(self, folder: Path) -> list[LossChangeRecorder]:
        """The hook for a training in `folder`: none if the plan requests none or the training started without it."""
        recorded = not self.models.plan.dynamics.on or self.cache.done(self.stored, self.content)
        return [self._recorder()] if is_begun_with(folder, self.key, recorded) else []

    def _recorder(self) -> LossChangeRecorder:
        models, recipe, plan = self.models, self.recipe, self.models.plan.dynamics
        objective, data, most = models.objective(recipe), models.data, models.plan.training.micro_tokens
        sources = [("train", data.train, plan.tokens), ("held-out", data.validation, plan.held_out_tokens)]
        sets = [
            evaluation_set(name, objective, models.held_out(recipe, part), tokens, plan.parts, micro_tokens=most)
            for name, part, tokens in sources
            if tokens
        ]
        out = self.cache.path(self.stored, self.key)
        return LossChangeRecorder(sets, load_model(models.initial(recipe)).anatomy, plan.record(), out)


@dataclass(frozen=True, kw_only=True, eq=False)
class CompareRecordings(AbstractTableStage):
    """The stage that compares how a study's training runs distribute learning; it is cheap and needs all of them."""

    kind = "compare"
    named = "compare recordings"
    stored = "recordings"
    makes = (ALLOCATION_SIMILARITY,)
    runs_models = False
    recordings: Sequence[Record]

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CompareRecordings]":
        records = [stage for stage in before if isinstance(stage, Record)]
        return [cls(recordings=records, needs=tuple(stage.key for stage in records))] if records else []

    def depends(self) -> list[Any]:
        recorded = [(one.key, one.recipe.name) for one in self.recordings]
        return ["recordings", ALLOCATION_SIMILARITY.version, recorded]

    @property
    def cache(self) -> ResultCache:
        return self.recordings[0].cache

    def make(self) -> pd.DataFrame:
        groups = [one.tables()[ALLOCATION_GROUPS.name] for one in self.recordings]
        return compare_trainings(pd.concat(groups, ignore_index=True))


def is_begun_with(folder: Path, key: str, recorded: bool) -> bool:
    """Whether the training in `folder` records `key`: either it starts now, or it started with this recording.

    Args:
        folder: Folder of the training; if it does not exist, it is created with a file that names `key`.
        key: Key of what the recording depends on.
        recorded: Whether the recording is complete.
    """
    note = folder / _NOTE
    if recorded:
        if is_first():
            note.unlink(missing_ok=True)  # a recording that starts now would have a gap
        return False
    if is_first() and not folder.exists():
        folder.mkdir(parents=True)
        with atomic_write(note) as temporary:
            temporary.write_text(key, encoding="utf-8")
    wait_for_all()
    return note.exists() and note.read_text(encoding="utf-8") == key


def training_hooks(models: StudyModels, recipe: Recipe, folder: Path) -> list[LossChangeRecorder]:
    """The recorder of a training in `folder`, if its loss changes are recorded."""
    return Record(models=models, recipe=recipe).recorders(folder)


# Compare recordings on several corpora: does the corpus decide which parts learn, or only the objective?


_CORPUS = Column("corpus", "string", "", "name of the study's folder")


def compare_recordings(studies: Sequence[Path | str], out: Path | str) -> Run:
    """Compare the recordings of studies that differ in their corpus, and write a run folder with table and report.

    The studies' plans should be equal except for `[corpus]`; other differences are reported as warnings. Each corpus is
    named after its study's folder.

    Args:
        studies: Folders that `infoflow study` wrote, with `[dynamics] on = true`.
        out: The run folder to write.

    Raises:
        UserError: A folder holds no recording, two folders share a name, or there are fewer than two folders.
    """
    runs = [RunFolder.existing(folder) for folder in studies]
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        raise UserError(
            "Corpora are named after their studies' folders, so these must have different names. Got "
            f"{', '.join(names)}."
        )
    for run in runs:
        if ALLOCATION_GROUPS.name not in run.tables:
            raise UserError(
                f"{run.path} has no recording of loss changes. Let `infoflow study` finish there, with a plan that "
                "sets [dynamics] on = true."
            )
    by_corpus = dict(zip(names, runs, strict=True))
    target = RunFolder(out)
    with only_one(target):
        check_output(target, "corpora")
        similarity = compare_corpora({name: run.tables[ALLOCATION_GROUPS.name] for name, run in by_corpus.items()})
        scores = []
        for name, run in by_corpus.items():  # the corpus prefix makes model names of several studies distinct
            frame = run.tables[TASK_SCORES.name]
            scores.append(frame.assign(corpus=name, model=name + "/" + frame["model"].astype(str)))
        target.tables.write(similarity, ALLOCATION_CORPORA)
        target.tables.write(pd.concat(scores, ignore_index=True), TASK_SCORES.with_keys(_CORPUS, *KEYS))
        target.tables.write(evaluate(target.tables, [FINDINGS["dynamics:V3"]]), FINDINGS_TABLE)
        _describe(target, by_corpus)
        write_report(target)
    return Run(target)


def _describe(target: RunFolder, by_corpus: dict[str, RunFolder]) -> None:
    manifests = {name: run.read() for name, run in by_corpus.items()}
    plans = {name: manifest.get("plan", {}) for name, manifest in manifests.items()}
    warnings = _differences(plans)
    for warning in warnings:
        current_display().warn(warning)
    target.record(
        kind="corpora",
        title="Does the corpus change which parameters learn?",
        plan={part: value for part, value in plans[min(plans)].items() if part != "corpus"},
        corpus={
            name: {"plan": plans[name].get("corpus", {}), **manifest.get("corpus", {})}
            for name, manifest in manifests.items()
        },
        models=[
            {**model, "model": f"{name}/{model['model']}"}
            for name, manifest in manifests.items()
            for model in manifest.get("models", [])
        ],
        warnings=warnings,
    )


def _differences(plans: dict[str, dict]) -> list[str]:
    """Differences between the studies other than the corpus."""
    (first, reference), *others = plans.items()
    parts = ("objectives", "seeds", "match", "model", "training", "dynamics")
    return [
        f"{name} and {first} differ in {part}, not only in the corpus."
        for name, plan in others
        for part in parts
        if plan.get(part) != reference.get(part)
    ]
