"""The models of a study: what each depends on, where it lies, how it is trained and loaded."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from infoflow.corpus import Corpus
from infoflow.flow import first_then_others, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, UserError, atomic_write, digest, use_display, version
from infoflow.models import Model, load_model
from infoflow.objectives import AbstractObjective
from infoflow.over_training import Clock, learning_rate_shares
from infoflow.results import BERT, Recipe, RunFolder, Subject
from infoflow.training import (
    SNAPSHOTS,
    LengthBucketSampler,
    Snapshot,
    SnapshotPlan,
    Snapshots,
    TrainConfig,
    TrainingData,
    TrainingHook,
    TrainResult,
    build_models,
    load_weights,
    train,
)

from ._data import StudyData, prepare
from ._plan import StudyPlan
from ._probing import check_tasks
from ._study_domain import StudyDomain
from ._study_tasks import StudyTasks
from ._workbench import Workbench

TRAINED = "trained"  # where the workbench keeps facts of finished trainings
_VERSION = 1  # raise when the same plan trains or scores other models
_COPIES = 10  # passes of pairs over the training text, each with other ones (BERT's dupe_factor)
_NOTED = ("key", "other_domain", "probed")  # digests of what is read, that keys depend on
_BOOKKEEPING = ("seed", "device", "log_every", "evaluate_every", "save_every", "keep_last")


class StudyModels:
    """The models that a plan asks for, in one run folder; its data are prepared when this is made.

    `prepared`: another process of the same study has done so, has left what keys depend on, and has checked the plan
    against the data.
    """

    def __init__(self, plan: StudyPlan, run: RunFolder, prepared: bool = False) -> None:
        self.plan, self.run = plan, run
        self.bench = Workbench(run.path / "work")
        self._snapshots: dict[str, Snapshots] = {}
        known = _read(self._note) if prepared else {}
        self.prepared = known.get("of") == self._of
        if self.prepared:
            self.data_key, self.other_domain, self.probed = (known[name] for name in _NOTED)
        else:
            self.data_key = self.data.key
            self.other_domain, self.probed = _digest(self.data.other_domain), _digest(self.data.probed)
            if self.data.probed is not None:
                check_tasks(plan.probing, self.data.probed)
            self._write_note()
        self.tasks = StudyTasks(plan, self.bench.folder, prepared)
        self.domain = StudyDomain(plan, self.bench.folder, lambda: self.data, prepared)

    @cached_property
    def data(self) -> StudyData:
        """The sentences, prepared when they are first needed."""
        with use_display(SilentDisplay()) if self.prepared else nullcontext():  # it was told of once
            return first_then_others(lambda: prepare(self.plan, self.bench.folder))

    @property
    def _of(self) -> str:
        plan = self.plan
        probed = [plan.analysis.sentences, plan.probing] if plan.probing.on else []
        return digest([version("infoflow"), plan.corpus, *probed])

    @property
    def _note(self) -> Path:
        return self.bench.folder / "data.json"

    def _write_note(self) -> None:
        """For processes of this study, most of which need no sentence but their keys."""
        if is_first():
            facts = {"of": self._of, "key": self.data_key, "other_domain": self.other_domain, "probed": self.probed}
            self._note.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._note) as temporary:
                temporary.write_text(json.dumps(facts), encoding="utf-8")
        wait_for_all()

    def objective(self, recipe: Recipe) -> AbstractObjective:
        return self.plan.objective(recipe.objective.label)

    # -- what a model depends on --------------------------------------------------------------------------------------

    def train_key(self, recipe: Recipe) -> str:
        plan = self.plan
        training = {k: v for k, v in dataclasses.asdict(plan.training).items() if k not in _BOOKKEEPING}
        settings = [plan.model, training, plan.match, self.objective(recipe)]
        # What all models of earlier versions had in common is left out, so that they are found again.
        more: list[Any] = (
            [] if (recipe.architecture, recipe.start) == (BERT, None) else [recipe.architecture, recipe.start_name]
        )
        more += ["windows"] if plan.reads(self.objective(recipe)) == "window" else []
        more += [self.train_key(teacher)] if (teacher := self.teacher(recipe)) else []
        return digest([_VERSION, self.data_key, settings, recipe.objective.label, recipe.seed, *more])

    def teacher(self, recipe: Recipe) -> Recipe | None:
        """The recipe of the model that this one learns from."""
        name = self.objective(recipe).teacher
        return dataclasses.replace(recipe, objective=self.plan.spec(name)) if name else None

    def states_key(self, subject: Subject) -> str:
        """What its states on the analysed sentences, and what is measured on them, depend on.

        Models that are not trained are the same for all objectives that begin and are measured alike, as most of those
        with encoder and decoder do. A checkpoint's weights follow from its training and its update, and from how they
        were rounded.
        """
        sentences, recipe = self.plan.analysis.sentences, subject.recipe
        if subject.update is not None and subject.trained:
            dtype = self.plan.checkpoints.dtype
            rounded = [] if dtype == "float32" or subject.update == self.updates(recipe) else [dtype]
            return digest([self.train_key(recipe), "update", subject.update, sentences, *rounded])
        if subject.trained:
            return digest([self.train_key(recipe), True, sentences])
        return digest([_VERSION, "untrained", *self._begins(recipe), *_measured_as(self.objective(recipe)), sentences])

    def begins_key(self, recipe: Recipe) -> str:
        """What the weights of its exported model before the first update depend on: less than what is measured of them,
        since it is of no account what objectives of one layout hide, or let the decoder write."""
        objective = self.objective(recipe)
        part = [objective.name] if objective.exports_a_part else []
        built = [objective.layout, objective.needs_translation, *part]
        return digest([_VERSION, "begins", *self._begins(recipe), *built])

    def _begins(self, recipe: Recipe) -> list[Any]:
        return [self.data_key, self.plan.model, self.plan.match, recipe.architecture, recipe.seed]

    # -- where it lies ------------------------------------------------------------------------------------------------

    def weights(self, recipe: Recipe) -> Path:
        """The folder of the trained weights."""
        return self.bench.path("training", self.train_key(recipe)) / "model"

    def log(self, recipe: Recipe) -> Path:
        """Where the training wrote its losses."""
        return self.weights(recipe).parent / "log.jsonl"

    def published(self, recipe: Recipe) -> Path:
        """Where people find the model."""
        return self.run.models / recipe.name

    def is_trained(self, recipe: Recipe) -> bool:
        return self.bench.done(TRAINED, self.train_key(recipe))

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def updates(self, recipe: Recipe) -> int:
        """How many updates the training really has."""
        training = self.plan.training
        if training.max_source_tokens is None:
            return training.updates
        if self.is_trained(recipe):
            return self.bench.read_facts(TRAINED, self.train_key(recipe))["updates"]
        lengths = self.training_data(recipe).source.lengths
        sampler = LengthBucketSampler(lengths, recipe.seed, training.batch_tokens, training.batch_sentences)
        return sampler.updates_within(training.max_source_tokens, training.updates)

    def wanted(self, recipe: Recipe) -> list[int]:
        """The updates that the plan wants kept, 0 and the last among them; empty where it wants none."""
        return self.plan.checkpoints.steps(self._as_long_as_it_is(recipe)) if self.plan.checkpoints.on else []

    def keeping(self) -> SnapshotPlan | None:
        """What a training is told to keep."""
        plan = self.plan.checkpoints
        return SnapshotPlan(steps=plan.steps, dtype=plan.dtype) if plan.on else None

    def snapshots(self, recipe: Recipe) -> Snapshots:
        """What is kept of its training."""
        folder = self.weights(recipe).parent / SNAPSHOTS
        return self._snapshots.setdefault(str(folder), Snapshots(folder))

    def kept(self, recipe: Recipe) -> list[int]:
        """Updates whose checkpoint is there, as it was written."""
        return self.snapshots(recipe).kept()

    def snapshot(self, recipe: Recipe, update: int) -> Snapshot:
        """What is known of a checkpoint: tokens, loss, learning rate, SHA-256.

        Raises:
            UserError: It is not there, or not as it was written.
        """
        kept = self.snapshots(recipe)
        entry = kept.entries().get(update)
        if entry is None or not kept.is_intact(entry):
            what = "is damaged" if entry else "was not kept"
            have = ", ".join(map(str, kept.kept())) or "none"
            raise UserError(
                f"The checkpoint of {recipe.name} after update {update} {what}. There are: {have}.\nAsk for it in "
                "checkpoints.schedule and run `infoflow study` on this folder."
            )
        return entry

    def checkpoint(self, recipe: Recipe, update: int) -> Path:
        """The folder of the weights after `update`, which `load_model` takes.

        Raises:
            UserError: It is not there, or not as it was written.
        """
        self.snapshot(recipe, update)
        return self.snapshots(recipe).path(update)

    def clock(self, recipe: Recipe, update: int) -> Clock:
        """Where in its training the checkpoint stands.

        Raises:
            UserError: It is not there, or not as it was written.
        """
        here, config = self.snapshot(recipe, update), self._as_long_as_it_is(recipe)
        entries = self.snapshots(recipe).entries().values()
        same = [one.update for one in entries if one.update < update and one.weights == here.weights]
        clock = Clock(
            update=update,
            tokens=float(here.tokens),
            progress=update / config.updates,
            lr_share=learning_rate_shares(config, [update])[0],
        )
        return dataclasses.replace(clock, same_as=same[0]) if same else clock

    def _as_long_as_it_is(self, recipe: Recipe) -> TrainConfig:
        return dataclasses.replace(self.plan.training, updates=self.updates(recipe))

    # -- training and loading -----------------------------------------------------------------------------------------

    def initial(self, recipe: Recipe) -> PreTrainedModel:
        """The model before its first update."""
        objective, data = self.objective(recipe), self.data
        models = build_models(
            [objective],
            self.plan.model,
            data.vocabulary,
            data.target_vocabulary,
            seed=recipe.seed,
            match=self.plan.match,  # type: ignore[arg-type]
            family=recipe.architecture.name,
        )
        return models[objective.name]

    def training_data(self, recipe: Recipe) -> TrainingData:
        """The training part as the objective reads it."""
        return self._arranged(recipe, self.data.train, _COPIES)

    def held_out(self, recipe: Recipe, part: Corpus) -> TrainingData:
        """A part that is not trained on, as the objective reads it."""
        return self._arranged(recipe, part)

    def _arranged(self, recipe: Recipe, part: Corpus, copies: int = 1) -> TrainingData:
        objective = self.objective(recipe)
        return self.data.arranged(part, self.plan.model.positions, objective, self.plan.reads(objective), copies)

    def first(self, recipe: Recipe) -> PreTrainedModel:
        """The model as its training begins: where it has a teacher, with what that has learned."""
        module: Any = self.initial(recipe)
        if (teacher := self.teacher(recipe)) is not None:
            taught = self.initial(teacher)
            load_weights(taught, self.weights(teacher), self.objective(teacher).exported)
            module.learn_from(self.objective(teacher).exported(taught))
        return module

    def train_into(
        self,
        recipe: Recipe,
        folder: Path,
        hooks: Sequence[TrainingHook],
        module: PreTrainedModel | None = None,
        snapshots: SnapshotPlan | None = None,
        **bookkeeping: Any,
    ) -> tuple[nn.Module, TrainResult]:
        """Train the model in `folder`; its weights depend on nothing but the plan, and on hooks on `module`."""
        module = module or self.first(recipe)
        result = train(
            self.objective(recipe),
            dataclasses.replace(self.plan.training, seed=recipe.seed, **bookkeeping),
            self.training_data(recipe),
            module,
            folder,
            validation=self.held_out(recipe, self.data.validation),
            hooks=hooks,
            snapshots=snapshots,
        )
        return module, result

    def drop_checkpoints(self, folder: Path) -> None:
        """Of a finished `train_into`: it is continued from its final weights."""
        if is_first():
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        wait_for_all()

    def load(self, subject: Subject) -> Model:
        """The model: trained, as it was before the first update, or at a checkpoint.

        Raises:
            UserError: It is not trained yet, or has no such checkpoint.
        """
        recipe, device = subject.recipe, self.plan.training.device
        if subject.trained:
            model = load_model(self._folder(subject), device=device)
        else:
            module = self.objective(recipe).exported(self.initial(recipe))
            model = load_model(module, tokenizer=self.data.tokenizer, device=device)
        return self.named(model, recipe, recipe.name)

    def named(self, model: Model, recipe: Recipe, name: str) -> Model:
        """The model under a name, with the tokenizer of what models of the recipe write."""
        target = self.data.target_tokenizer if self.objective(recipe).needs_translation else None
        return dataclasses.replace(model, name=name, target_tokenizer=target)

    def whole(self, subject: Subject, model: Model) -> Model:
        """`model`, or, where it is a part of what was trained, all of that: what the objective's loss is taken on."""
        objective = self.objective(subject.recipe)
        if not objective.exports_a_part:
            return model
        module = self.initial(subject.recipe)
        if subject.trained:
            load_weights(module, self._folder(subject), objective.exported)
        return dataclasses.replace(model, module=module.to(model.device).eval())

    def _folder(self, subject: Subject) -> Path:
        """The weights of a model that is trained, or was to some extent."""
        recipe = subject.recipe
        if subject.update is not None:
            return self.checkpoint(recipe, subject.update)
        if not self.is_trained(recipe):
            raise UserError(f"{recipe.name} is not trained yet: run `infoflow study` on this folder first.")
        return self.weights(recipe)


def _measured_as(objective: AbstractObjective) -> list[Any]:
    """What is asked of an objective to build and to measure a model: what its decoder reads, or how text is hidden."""
    if objective.layout == "encoder-decoder":
        return [objective.layout, objective.needs_translation, objective.writes]
    read = objective.on_text()
    return [objective.layout, read.name, read]


def _read(path: Path) -> dict[str, Any]:
    """What the note holds; nothing where there is none, or a damaged one."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return facts if isinstance(facts, dict) and {"of", *_NOTED} <= facts.keys() else {}
    except (OSError, ValueError):
        return {}


def _digest(corpus: Corpus | None) -> str | None:
    return None if corpus is None else corpus.digest
