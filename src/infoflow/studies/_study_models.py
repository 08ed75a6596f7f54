"""The models of a study: their dependencies, folders, training and loading."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from infoflow import training
from infoflow._subjects import provided
from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Corpus
from infoflow.flow import first_then_others, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, UserError, atomic_write, digest, read_object, use_display, version
from infoflow.models import Model, load_model
from infoflow.objectives import AbstractObjective
from infoflow.results import BERT, Recipe, RunFolder, Subject

from ._data import StudyData, further_sentences, prepare
from ._plan import StudyPlan
from ._result_cache import ResultCache

Own = TypeVar("Own")
TRAINED = "trained"  # result cache stage for facts of finished training runs
_VERSION = 1  # to be increased when the same plan trains other models or gives other scores
_COPIES = 10  # passes of pairs over the training text, each with different pairs (BERT's dupe_factor)
_NOTED = ("key", "other_domain")  # digests of the data that keys depend on
_BOOKKEEPING = ("seed", "device", "log_every", "evaluate_every", "save_every", "keep_last")


class StudyModels:
    """The models that a plan requests, in one run folder; creating this object prepares the data.

    If `prepared` is true, another process of the same study has prepared the data, stored what keys depend on, and
    checked the plan against the data.
    """

    def __init__(self, plan: StudyPlan, run: RunFolder, prepared: bool = False) -> None:
        self.plan, self.run = plan, run
        self.bench = ResultCache(run.path / "work")
        self._snapshots: dict[str, training.Snapshots] = {}
        known = prepared_keys(plan, run) if prepared else {}
        self.prepared = bool(known)
        if known:
            self.data_key, self.other_domain = (known[name] for name in _NOTED)
            self.further = {name: known[name] for name in further_sentences()}
        else:
            self.data_key, self.other_domain = self.data.key, _digest(self.data.other_domain)
            self.further = {name: _digest(own) for name, own in self.data.further.items()}
        self._own = {type(one): one for prepare in provided("stages", "prepared") for one in prepare(self, prepared)}
        if not known:
            self._write_note()

    def own(self, kind: type[Own]) -> Own:
        """What a package in `infoflow.subjects` has prepared for these models, such as tasks for fine-tuning."""
        return self._own[kind]

    @cached_property
    def data(self) -> StudyData:
        with use_display(SilentDisplay()) if self.prepared else nullcontext():  # already reported
            return first_then_others(lambda: prepare(self.plan, self.bench.folder))

    def _write_note(self) -> None:
        """Store what keys depend on for other processes of this study, most of which need no sentences."""
        if is_first():
            of = _of(self.plan)
            facts = {"of": of, "key": self.data_key, "other_domain": self.other_domain, **self.further}
            with atomic_write(_note(self.run)) as temporary:
                temporary.write_text(json.dumps(facts), encoding="utf-8")
        wait_for_all()

    def objective(self, recipe: Recipe) -> AbstractObjective:
        return self.plan.objective(recipe.objective.label)

    # -- dependencies -------------------------------------------------------------------------------------------------

    def train_key(self, recipe: Recipe) -> str:
        plan = self.plan
        config = {k: v for k, v in dataclasses.asdict(plan.training).items() if k not in _BOOKKEEPING}
        settings = [plan.model, config, plan.match, self.objective(recipe)]
        # Settings that all models of earlier versions shared are omitted, so that those models are found again.
        more: list[Any] = (
            [] if (recipe.architecture, recipe.start) == (BERT, None) else [recipe.architecture, recipe.start_name]
        )
        more += ["windows"] if plan.reads(self.objective(recipe)) == "window" else []
        more += [self.train_key(teacher)] if (teacher := self.teacher(recipe)) else []
        return digest([_VERSION, self.data_key, settings, recipe.objective.label, recipe.seed, *more])

    def teacher(self, recipe: Recipe) -> Recipe | None:
        name = self.objective(recipe).teacher
        return dataclasses.replace(recipe, objective=self.plan.spec(name)) if name else None

    def states_key(self, subject: Subject) -> str:
        """Key of the subject's states on the analysed sentences, and of what is measured on them.

        Objectives with the same initialisation and measurement have equal untrained models, as most encoder-decoders
        do. The weights of a checkpoint follow from its training, its update and their rounding.
        """
        recipe, read = subject.recipe, [self.plan.analysis.sentences, *self.plan.analysis.budget]
        if subject.update is not None and subject.trained:
            dtype = self.plan.checkpoints.dtype
            rounded = [] if dtype == "float32" or subject.update == self.updates(recipe) else [dtype]
            return digest([self.train_key(recipe), "update", subject.update, *read, *rounded])
        if subject.trained:
            return digest([self.train_key(recipe), True, *read])
        return digest([_VERSION, "untrained", *self._begins(recipe), *_measured_as(self.objective(recipe)), *read])

    def begins_key(self, recipe: Recipe) -> str:
        """Key of the weights that the recipe's exported model has before the first update.

        It depends on fewer things than measurements do: objectives with one layout share it, whatever they mask or let
        the decoder generate.
        """
        objective = self.objective(recipe)
        part = [objective.name] if objective.exports_a_part else []
        built = [objective.layout, objective.needs_translation, *part]
        return digest([_VERSION, "begins", *self._begins(recipe), *built])

    def _begins(self, recipe: Recipe) -> list[Any]:
        return [self.data_key, self.plan.model, self.plan.match, recipe.architecture, recipe.seed]

    # -- folders ------------------------------------------------------------------------------------------------------

    def weights(self, recipe: Recipe) -> Path:
        return self.bench.path("training", self.train_key(recipe)) / "model"

    def log(self, recipe: Recipe) -> Path:
        return self.weights(recipe).parent / "log.jsonl"

    def published(self, recipe: Recipe) -> Path:
        return self.run.models / recipe.name

    def is_trained(self, recipe: Recipe) -> bool:
        return self.bench.done(TRAINED, self.train_key(recipe))

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def updates(self, recipe: Recipe) -> int:
        config = self.plan.training
        if config.max_source_tokens is None:
            return config.updates
        if self.is_trained(recipe):
            return self.bench.read_facts(TRAINED, self.train_key(recipe))["updates"]
        lengths = self.training_data(recipe).source.lengths
        sampler = training.LengthBucketSampler(lengths, recipe.seed, config.batch_tokens, config.batch_sentences)
        return sampler.updates_within(config.max_source_tokens, config.updates)

    def wanted(self, recipe: Recipe) -> list[int]:
        """The updates that the plan wants to keep, including 0 and the last; empty if it keeps none."""
        return self.plan.checkpoints.steps(self._as_long_as_it_is(recipe)) if self.plan.checkpoints.on else []

    def keeping(self) -> training.SnapshotPlan | None:
        plan = self.plan.checkpoints
        return training.SnapshotPlan(steps=plan.steps, dtype=plan.dtype) if plan.on else None

    def snapshots(self, recipe: Recipe) -> training.Snapshots:
        folder = self.weights(recipe).parent / training.SNAPSHOTS
        return self._snapshots.setdefault(str(folder), training.Snapshots(folder))

    def kept(self, recipe: Recipe) -> list[int]:
        return self.snapshots(recipe).kept()

    def snapshot(self, recipe: Recipe, update: int) -> training.Snapshot:
        """Facts about a checkpoint: tokens, loss, learning rate, SHA-256."""
        kept = self.snapshots(recipe)
        entry = kept.entries().get(update)
        if entry is None or not kept.is_intact(entry):
            what = "is damaged" if entry else "was not kept"
            have = ", ".join(map(str, kept.kept())) or "none"
            raise UserError(
                f"The checkpoint of {recipe.name} after update {update} {what}. Available: {have}.\nAdd it to "
                "checkpoints.schedule and run `infoflow study` on this folder."
            )
        return entry

    def checkpoint(self, recipe: Recipe, update: int) -> Path:
        """The folder of the weights after `update`, for `load_model`."""
        self.snapshot(recipe, update)
        return self.snapshots(recipe).path(update)

    def clock(self, recipe: Recipe, update: int) -> training.Clock:
        here, config = self.snapshot(recipe, update), self._as_long_as_it_is(recipe)
        entries = self.snapshots(recipe).entries().values()
        same = [one.update for one in entries if one.update < update and one.weights == here.weights]
        clock = training.Clock(
            update=update,
            tokens=float(here.tokens),
            progress=update / config.updates,
            lr_share=training.learning_rate_shares(config, [update])[0],
        )
        return dataclasses.replace(clock, same_as=same[0]) if same else clock

    def _as_long_as_it_is(self, recipe: Recipe) -> training.TrainConfig:
        return dataclasses.replace(self.plan.training, updates=self.updates(recipe))

    # -- training and loading -----------------------------------------------------------------------------------------

    def initial(self, recipe: Recipe) -> PreTrainedModel:
        objective, data = self.objective(recipe), self.data
        models = training.build_models(
            [objective],
            self.plan.model,
            data.vocabulary,
            data.target_vocabulary,
            seed=recipe.seed,
            match=self.plan.match,  # type: ignore[arg-type]
            family=recipe.architecture.name,
        )
        return models[objective.name]

    def training_data(self, recipe: Recipe) -> training.TrainingData:
        """The training part of the data in the form that the objective reads."""
        return self._arranged(recipe, self.data.train, _COPIES)

    def held_out(self, recipe: Recipe, part: Corpus) -> training.TrainingData:
        """A held-out part of the data in the form that the objective reads."""
        return self._arranged(recipe, part)

    def _arranged(self, recipe: Recipe, part: Corpus, copies: int = 1) -> training.TrainingData:
        objective = self.objective(recipe)
        return self.data.arranged(part, self.plan.model.positions, objective, self.plan.reads(objective), copies)

    def first(self, recipe: Recipe) -> PreTrainedModel:
        """The model at the start of its training, initialised from its teacher if it has one."""
        module: Any = self.initial(recipe)
        if (teacher := self.teacher(recipe)) is not None:
            taught = self.initial(teacher)
            training.load_weights(taught, self.weights(teacher), self.objective(teacher).exported)
            module.learn_from(self.objective(teacher).exported(taught))
        return module

    def train_into(
        self,
        recipe: Recipe,
        folder: Path,
        hooks: Sequence[training.TrainingHook],
        module: PreTrainedModel | None = None,
        snapshots: training.SnapshotPlan | None = None,
        **bookkeeping: Any,
    ) -> tuple[nn.Module, training.TrainResult]:
        """Train the model in `folder`; its weights depend only on the plan and on any hooks that change `module`."""
        module = module or self.first(recipe)
        result = training.train(
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
        """Remove the checkpoints of a finished `train_into`, whose final weights are enough to continue."""
        if is_first():
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        wait_for_all()

    def load(self, subject: Subject) -> Model:
        """The trained model, the model before its first update, or a checkpoint."""
        recipe, device = subject.recipe, self.plan.training.device
        if subject.trained:
            model = load_model(self._folder(subject), device=device)
        else:
            module = self.objective(recipe).exported(self.initial(recipe))
            model = load_model(module, tokenizer=self.data.tokenizer, device=device)
        return self.named(model, recipe, recipe.name)

    def named(self, model: Model, recipe: Recipe, name: str) -> Model:
        """The model under this name, with the tokenizer of the recipe's output."""
        target = self.data.target_tokenizer if self.objective(recipe).needs_translation else None
        return dataclasses.replace(model, name=name, target_tokenizer=target)

    def whole(self, subject: Subject, model: Model) -> Model:
        """`model`, or the complete trained model that contains it and that the objective's loss needs."""
        objective = self.objective(subject.recipe)
        if not objective.exports_a_part:
            return model
        module = self.initial(subject.recipe)
        if subject.trained:
            training.load_weights(module, self._folder(subject), objective.exported)
        return dataclasses.replace(model, module=module.to(model.device).eval())

    def _folder(self, subject: Subject) -> Path:
        recipe = subject.recipe
        if subject.update is not None:
            return self.checkpoint(recipe, subject.update)
        if not self.is_trained(recipe):
            raise UserError(f"{recipe.name} is not trained yet: run `infoflow study` on this folder first.")
        return self.weights(recipe)


def _measured_as(objective: AbstractObjective) -> list[Any]:
    """Properties of an objective that determine how its models are built and measured: decoder input and corruption."""
    if objective.layout == "encoder-decoder":
        return [objective.layout, objective.needs_translation, objective.writes]
    read = objective.on_text()
    return [objective.layout, read.name, read]


def prepared_keys(plan: StudyPlan, run: RunFolder) -> dict[str, Any]:
    """What keys depend on, as stored by the process that prepared this plan's data; empty if no process did."""
    try:
        facts = read_object(_note(run))
    except (OSError, ValueError):
        return {}
    needed = {"of", *_NOTED, *further_sentences()}
    return facts if needed <= facts.keys() and facts["of"] == _of(plan) else {}


def _of(plan: StudyPlan) -> str:
    further = [value for own in further_sentences().values() for value in own.settings(plan)]
    return digest([version("infoflow"), plan.corpus, *further])


def _note(run: RunFolder) -> Path:
    return run.path / "work" / "data.json"


def _digest(corpus: Corpus | None) -> str | None:
    return None if corpus is None else corpus.digest
