"""The models of a domain: a study's models after further pretraining, or trained on the domain alone."""

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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

from ..measures import add_tokens
from ..settings import TunePlan
from ._study_tasks import CONTINUED, SCRATCH, TASK_TEXTS, StudyDomain, StudyTasks, unlabelled

FOLDER = "specialising"
_VERSION = 1  # increase when the same plan specialises differently
_COPIES = 10  # passes over the text, each with different sentence pairs, as in general training


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
        """The model's pretraining objective."""
        return self.models.objective(self.recipe)

    @cached_property
    def key(self) -> str:
        """Key of everything that the weights depend on."""
        models, plan = self.models, self.models.plan
        data, section = models.own(StudyDomain).key(self.strategy), plan.domain
        if self.strategy == SCRATCH:
            training = {name: value for name, value in dataclasses.asdict(self.config).items() if name not in _FREE}
            model = [plan.model, plan.match, self.recipe.architecture, self.recipe.objective.label, self.recipe.seed]
            return digest([_VERSION, SCRATCH, data, model, self.objective, training])
        settings = [section.num_updates(plan.training.updates), section.learning_rate, section.warmup]
        parent = self.before.key if self.before else models.train_key(self.recipe)
        text = [] if self.task is None else [models.own(StudyTasks).digest(self.task)]
        return digest([_VERSION, CONTINUED, parent, data, settings, section.extend_vocabulary, *text])

    @cached_property
    def before(self) -> "Specialised | None":
        """The phase before this one; None for the first."""
        if self.task is not None and "domain" in self.models.plan.domain.phases:
            return dataclasses.replace(self, task=None)
        return None

    @property
    def shown(self) -> str:
        """The strategy's name in tables, which differs for the phase "task", since its texts are not the domain's."""
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
        """The model's training settings: those of general training, overridden by `[domain]`."""
        plan = self.models.plan
        section, general = plan.domain, plan.training
        shared: dict[str, Any] = {"seed": self.recipe.seed, "max_source_tokens": None}
        if self.strategy == SCRATCH:
            return dataclasses.replace(general, updates=section.num_scratch_updates(general.updates), **shared)
        return dataclasses.replace(
            general,
            updates=section.num_updates(general.updates),
            learning_rate=section.learning_rate,
            warmup=section.warmup,
            schedule="linear",
            end_learning_rate=0.0,
            **shared,
        )

    # -- texts --------------------------------------------------------------------------------------------------------

    @cached_property
    def data(self) -> StudyData:
        """The domain's parts; in the phase "task", unlabelled texts of the task's training and dev parts instead."""
        data = self.models.own(StudyDomain).data(self.strategy)
        if self.task is None:
            return data
        task = self.models.own(StudyTasks).data(self.task)
        train_texts = Corpus.from_sentences(unlabelled(task), f"{task.name}, unlabelled")
        validation = Corpus.from_sentences(unlabelled(dataclasses.replace(task, train=task.dev)), f"{task.name}, dev")
        return dataclasses.replace(data, train=train_texts, validation=validation, target_tokenizer=None)

    # -- weights ------------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Train the model, or finish an interrupted training, and return facts about it, such as its cost."""
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
        """The model for computing its loss, including parts that the exported model, and therefore `load`, lacks."""
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
        """The module with the tokens that the domain adds to its vocabulary."""
        if (extended := self.models.own(StudyDomain).vocabulary) is not None:
            add_tokens(module, extended, decoder=not self.objective.needs_translation)
        return module


_FREE = ("seed", "device", "log_every", "evaluate_every", "save_every", "keep_last")


def specialised(models: StudyModels, recipe: Recipe) -> Sequence[Specialised]:
    """All domain models that a plan requests for a recipe, each after the one from which it starts."""
    section, found = models.plan.domain, list[Specialised]()
    for strategy in section.strategies:
        if strategy == SCRATCH:
            found += [Specialised(models=models, recipe=recipe, strategy=SCRATCH)] if section.corpus else []
            continue
        if "domain" in section.phases:
            found.append(Specialised(models=models, recipe=recipe, strategy=CONTINUED))
        if "task" in section.phases and _reads_sentences(models, recipe):
            found += [
                Specialised(models=models, recipe=recipe, strategy=CONTINUED, task=one) for one in models.plan.tune
            ]
    return found


def _reads_sentences(models: StudyModels, recipe: Recipe) -> bool:
    """Whether the model reads single sentences, like the texts of a task, rather than translations or documents."""
    objective = models.objective(recipe)
    return not objective.needs_translation and models.plan.reads(objective) == "sentence"
