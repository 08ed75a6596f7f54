"""The models that a study tunes: after further pretraining, for one task with one method."""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Corpus
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.models import Model, load_model
from infoflow.objectives import AbstractObjective
from infoflow.results import Recipe, Subject
from infoflow.studies._data import StudyData
from infoflow.studies._study_models import StudyModels
from infoflow.training import TrainConfig, build_models, load_weights, train

from ..measures import FROZEN_METHODS, INSIDE, TUNING_CHANGE, TuneConfig, add_tokens, reads_both_sides
from ..settings import TunePlan
from ._study_tasks import AS_IS, CONTINUED, SCRATCH, TASK_TEXTS, StudyDomain, StudyTasks, unlabelled

FOLDER = "specialising"
_VERSION = 1  # increase when the same plan specialises differently
_COPIES = 10  # passes of pairs over the text, as in general training


@dataclass(frozen=True, kw_only=True, eq=False)
class Specialised:
    """A model of the domain.

    `continued` starts from the study's trained model and reads the domain's corpus; with `task` it then reads the
    unlabelled texts of that task. `scratch` starts from random weights of the recipe's seed and reads the domain's
    corpus with its own vocabulary, for as many updates as general training and one phase together, unless
    `domain.scratch_updates` says otherwise.
    """

    models: StudyModels
    recipe: Recipe
    strategy: str
    task: TunePlan | None = None  # for the phase "task"

    @property
    def objective(self) -> AbstractObjective:
        """Its pretraining objective."""
        return self.models.objective(self.recipe)

    @cached_property
    def key(self) -> str:
        """Key of everything that the weights depend on."""
        models, plan = self.models, self.models.plan
        data, asked = models.own(StudyDomain).key(self.strategy), plan.domain
        if self.strategy == SCRATCH:
            training = {name: value for name, value in dataclasses.asdict(self.config).items() if name not in _FREE}
            model = [plan.model, plan.match, self.recipe.architecture, self.recipe.objective.label, self.recipe.seed]
            return digest([_VERSION, SCRATCH, data, model, self.objective, training])
        settings = [asked.num_updates(plan.training.updates), asked.learning_rate, asked.warmup]
        parent = self.before.key if self.before else models.train_key(self.recipe)
        text = [] if self.task is None else [models.own(StudyTasks).digest(self.task)]
        return digest([_VERSION, CONTINUED, parent, data, settings, asked.extend_vocabulary, *text])

    @cached_property
    def before(self) -> "Specialised | None":
        """The phase before this one; None for the first."""
        if self.task is not None and "domain" in self.models.plan.domain.phases:
            return dataclasses.replace(self, task=None)
        return None

    @property
    def shown(self) -> str:
        """The strategy's name in tables; texts of a task do not belong to the domain."""
        return TASK_TEXTS if self.task else self.strategy

    @property
    def folder(self) -> Path:
        return self.models.bench.path(FOLDER, self.key)

    @property
    def name(self) -> str:
        """Display name."""
        return f"{self.recipe.name}, {self.strategy}" + (f" on {self.task.name}" if self.task else "")

    @property
    def config(self) -> TrainConfig:
        """Its training settings: those of general training, overridden by `[domain]`."""
        plan = self.models.plan
        asked, general = plan.domain, plan.training
        shared: dict[str, Any] = {"seed": self.recipe.seed, "max_source_tokens": None}
        if self.strategy == SCRATCH:
            return dataclasses.replace(general, updates=asked.num_scratch_updates(general.updates), **shared)
        return dataclasses.replace(
            general,
            updates=asked.num_updates(general.updates),
            learning_rate=asked.learning_rate,
            warmup=asked.warmup,
            schedule="linear",
            end_learning_rate=0.0,
            **shared,
        )

    # -- texts --------------------------------------------------------------------------------------------------------

    @cached_property
    def data(self) -> StudyData:
        """The domain's parts; the phase "task" trains on the task's unlabelled texts and validates on those of dev."""
        data = self.models.own(StudyDomain).data(self.strategy)
        if self.task is None:
            return data
        task = self.models.own(StudyTasks).data(self.task)
        train_texts = Corpus.from_sentences(unlabelled(task), f"{task.name}, unlabelled")
        validation = Corpus.from_sentences(unlabelled(dataclasses.replace(task, train=task.dev)), f"{task.name}, dev")
        return dataclasses.replace(data, train=train_texts, validation=validation, target_tokenizer=None)

    # -- weights ------------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Train it, or finish an interrupted training; returns what the training took."""
        plan, objective = self.models.plan, self.objective
        positions, reads = plan.model.positions, plan.reads(objective)
        module, data = self._first(), self.data
        result = train(
            objective,
            self.config,
            data.arranged(data.train, positions, objective, reads, _COPIES),
            module,
            self.folder,
            validation=data.arranged(data.validation, positions, objective, reads),
            parent="" if self.strategy == SCRATCH else self._parent_key,
        )
        if is_first():
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        return {"updates": result.updates, "source_tokens": result.source_tokens, "seconds": result.seconds}

    def load(self) -> Model:
        """The trained model."""
        model = load_model(self.folder / "model", device=self.models.plan.training.device)
        named = self.models.named(model, self.recipe, self.name)
        target = self.data.target_tokenizer if self.objective.needs_translation else None
        return dataclasses.replace(named, target_tokenizer=target)

    def whole(self) -> Model:
        """As `load`, including parts that its folder does not store as a model; its loss needs the whole."""
        model = self.load()
        if not self.objective.exports_a_part:
            return model
        module = self._fresh()
        load_weights(module, self.folder / "model", self.objective.exported)
        return dataclasses.replace(model, module=module.to(model.device).eval())

    @property
    def _parent_key(self) -> str:
        return self.before.load().digest if self.before else self.models.load(Subject(recipe=self.recipe)).digest

    def _fresh(self) -> PreTrainedModel:
        if self.strategy != SCRATCH:
            return self._extended(self.models.initial(self.recipe))
        data, plan = self.data, self.models.plan
        built = build_models(
            [self.objective],
            plan.model,
            data.vocabulary,
            data.target_vocabulary,
            seed=self.recipe.seed,
            match=plan.match,  # type: ignore[arg-type]
            family=self.recipe.architecture.name,
        )
        return built[self.objective.name]

    def _first(self) -> PreTrainedModel:
        if self.strategy == SCRATCH:
            return self._fresh()
        if self.before is not None:
            module = self._fresh()
            load_weights(module, self.before.folder / "model", self.objective.exported)
            return module
        module = self.models.initial(self.recipe)
        load_weights(module, self.models.weights(self.recipe), self.objective.exported)
        return self._extended(module)

    def _extended(self, module: PreTrainedModel) -> PreTrainedModel:
        """The module with the words that the domain adds to its vocabulary."""
        if (extended := self.models.own(StudyDomain).vocabulary) is not None:
            add_tokens(module, extended, decoder=not self.objective.needs_translation)
        return module


_FREE = ("seed", "device", "log_every", "evaluate_every", "save_every", "keep_last")


def specialised(models: StudyModels, recipe: Recipe) -> Sequence[Specialised]:
    """All domain models that a plan requests for a recipe, each after the one that it starts from."""
    asked, found = models.plan.domain, list[Specialised]()
    for strategy in asked.strategies:
        if strategy == SCRATCH:
            found += [Specialised(models=models, recipe=recipe, strategy=SCRATCH)] if asked.corpus else []
            continue
        if "domain" in asked.phases:
            found.append(Specialised(models=models, recipe=recipe, strategy=CONTINUED))
        if "task" in asked.phases and _reads_sentences(models, recipe):
            found += [
                Specialised(models=models, recipe=recipe, strategy=CONTINUED, task=one) for one in models.plan.tune
            ]
    return found


def _reads_sentences(models: StudyModels, recipe: Recipe) -> bool:
    """Whether it reads sentences without translations or documents; other models cannot read texts of a task."""
    objective = models.objective(recipe)
    return not objective.needs_translation and models.plan.reads(objective) == "sentence"


# A model that a study tunes: trained or untrained, general or specialised, for one task with one method.

FULL, SHUFFLED, UNTRAINED = "full", "shuffled-labels", "untrained"
_TUNING, _FEATURES = "tuning", "tuning-features"


@dataclass(frozen=True, kw_only=True, eq=False)
class TunedSubject:
    """One pretrained model × task × method × size × control, with all tuning seeds."""

    models: StudyModels
    subject: Subject
    asked: TunePlan
    special: Specialised | None = None  # None: as the study pretrained it
    method: str = FULL
    examples: int = 0  # 0: all
    control: str = ""

    @property
    def strategy(self) -> str:
        return self.special.shown if self.special else AS_IS

    @property
    def inside(self) -> tuple[str, ...]:
        """The tables of the inside view that are computed.

        Models that are not examined have none, the control with shuffled labels has only the table of how far spaces
        moved, and all others have all tables. Untrained models are also examined, as a control.
        """
        named = self.asked.inside_objectives
        if not self.asked.inside or (named and self.subject.recipe.objective.label not in named):
            return ()
        if self._whole:
            return INSIDE
        return (TUNING_CHANGE.name,) if self._alike and self.control == SHUFFLED else ()

    @property
    def followed(self) -> bool:
        """Whether the learning of each example is tracked: for examined models and untrained equals of these."""
        return self._whole and (bool(self.inside) or self._same_is_looked_at)

    @cached_property
    def _same_is_looked_at(self) -> bool:
        """Whether it is an untrained model that is examined under the name of another objective."""
        if self.subject.trained or not self.asked.inside:
            return False
        named = [one for one in self.models.plan.recipes() if one.objective.label in self.asked.inside_objectives]
        others = (dataclasses.replace(self, subject=Subject(recipe=one).before_training()) for one in named)
        return any(other.key == self.key for other in others)

    @property
    def stays(self) -> bool:
        """Whether the tuned models are kept for examination."""
        return bool(self.inside) or self.followed

    @property
    def plain(self) -> bool:
        """Whether it is the original pretrained model, tuned in full on all examples."""
        return self._whole and self.subject.trained

    @property
    def _whole(self) -> bool:
        """Whether all weights are tuned on all unchanged examples, for a model without further pretraining."""
        return self._alike and not self.control

    @property
    def _alike(self) -> bool:
        """As `_whole`, but for any labels."""
        return (self.method, self.examples, self.strategy) == (FULL, 0, AS_IS)

    @property
    def config(self) -> TuneConfig:
        device = self.models.plan.training.device
        return self.asked.config(self.method, self.examples, self.control, device)

    @property
    def name(self) -> str:
        """Display name."""
        size = f"{self.examples:,} examples" if self.examples else ""
        untrained = "" if self.subject.trained else "from scratch"
        special = self.strategy if self.special else ""
        details = [one for one in (special, untrained, self.method, size, self.control) if one]
        return f"{self.subject.name} for {self.asked.name} ({', '.join(details)})"

    @property
    def objective(self) -> AbstractObjective:
        """The pretraining objective of the model."""
        return self.models.objective(self.subject.recipe)

    @cached_property
    def model_key(self) -> str:
        """Key of the pretrained weights; untrained models are equal for many objectives."""
        if self.special is not None:
            return self.special.key
        if self.subject.trained:
            return self.models.train_key(self.subject.recipe)
        return self.models.begins_key(self.subject.recipe)

    @cached_property
    def key(self) -> str:
        """Key of everything that the tuned models depend on."""
        config = self.config
        content = [
            self.model_key,
            self.models.own(StudyTasks).digest(self.asked),
            config.key(),
            config.seeds,
            config.answers,
        ]
        both = reads_both_sides(self.models.own(StudyTasks).shape(self.asked), self.objective)
        return digest([*content, *(["two-sided"] if both else [])])

    @property
    def folder(self) -> Path:
        """Working folder of `tune`, which holds its models."""
        return self.models.bench.path(_TUNING, self.key)

    @property
    def features(self) -> Path:
        """Folder in which the features of a frozen body are kept for the next task."""
        return self.models.bench.path(_FEATURES, self.model_key)

    def load(self) -> Model:
        """The pretrained model."""
        return self.special.load() if self.special else self.models.load(self.subject)

    def tuned_columns(self, shape: str, examples: int) -> dict[str, Any]:
        """Its values in the columns of `TUNED`."""
        return {
            "task": self.asked.name,
            "shape": shape,
            "strategy": self.strategy,
            "method": self.method,
            "examples": examples,
            "control": self.control,
        }

    def columns(self) -> dict[str, Any]:
        """Its values in the key columns of tables: those of the pretrained model."""
        return self.subject.keys()


def tuned_subjects(models: StudyModels) -> Iterator[TunedSubject]:
    """All tunings that a plan requests, by task and model; frozen ones come last, grouped by model."""
    plan = models.plan
    every = [one for asked in plan.tune for one in _of_task(models, asked)]
    yield from (one for one in every if one.method not in FROZEN_METHODS)
    frozen = [one for one in every if one.method in FROZEN_METHODS]
    yield from sorted(frozen, key=lambda one: (one.method, one.subject.name, one.model_key))


def _of_task(models: StudyModels, asked: TunePlan) -> Iterator[TunedSubject]:
    """Every model with every method and size, then the controls: untrained models, which learn the task from scratch,
    and shuffled labels.
    """
    tasks = models.own(StudyTasks)
    sizes, methods = tasks.sizes(asked), tasks.methods(asked)
    for recipe in tasks.fitting(asked, models.plan.recipes()):
        plain = TunedSubject(models=models, subject=Subject(recipe=recipe), asked=asked)
        for special, method, size in product(_pretrained(models, recipe, asked), methods, sizes):
            yield dataclasses.replace(plain, special=special, method=method, examples=size)
        if UNTRAINED in asked.controls:
            untrained = plain.subject.before_training()
            yield from (dataclasses.replace(plain, subject=untrained, examples=size) for size in sizes)
        if SHUFFLED in asked.controls:
            yield dataclasses.replace(plain, control=SHUFFLED)


def _pretrained(models: StudyModels, recipe: Recipe, asked: TunePlan) -> list[Specialised | None]:
    """The general model (None), and the specialised one after each phase; the phase "task" uses this task's texts."""
    if not models.plan.domain.on or recipe not in models.own(StudyDomain).recipes:
        return [None]
    return [None, *(one for one in specialised(models, recipe) if one.task is None or one.task is asked)]
