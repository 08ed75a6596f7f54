"""The models of `[retrieval]`: their dependencies, initialisation, training and loading."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infoflow._transformers import PreTrainedModel
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import atomic_folder, digest
from infoflow.results import BERT, RETRIEVAL_LEARNING, Recipe, Spec, write_table
from infoflow.studies._study_models import StudyModels
from infoflow.training import (
    SNAPSHOTS,
    SnapshotPlan,
    Snapshots,
    TrainConfig,
    TrainingHook,
    TrainResult,
    load_weights,
    train,
    usable_device,
)

from ..models import RetrievalModel
from ..objectives._retrieval_lm import SOURCES, RetrievalLM, retrieval_model
from ..settings import EXCHANGES, OF_VARIANTS, WRITTEN, RetrievalPlan
from ..training._index_refresh import IndexRefresh
from ._first_readers import (
    ARMS_VERSION,
    SeedModel,
    WarmedReader,
    WarmModel,
    first_reader,
    first_writer,
    matter_key,
    settings_key,
    text_of,
)
from ._reading_matter import AbstractReadingMatter, ReadWorld, read_world

READ = "read"  # result cache stage for facts of finished training runs
READING = "reading"
LEARNING = f"{RETRIEVAL_LEARNING.name}.parquet"
RETRIEVER = "retriever"  # subfolder of a reader, if the model has a retriever
Recorders = Callable[[RetrievalModel], Sequence[TrainingHook]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmModel(SeedModel):
    """One reader: a passage source (`arm`), its modification (`variant`), and a seed."""

    arm: str
    variant: str  # "": unmodified
    halved: bool = False  # trained at half the rate, because a plain model of the study learned nothing at full rate

    @property
    def recipe(self) -> Recipe:
        """The recipe that identifies the model in tables."""
        return Recipe(objective=Spec(self.arm, self.variant), architecture=BERT, seed=self.seed)

    @property
    def name(self) -> str:
        return self.recipe.name + (" at half the rate" if self.halved else "")

    @property
    def writes(self) -> bool:
        """Whether the reader is an encoder-decoder, which generates its answers."""
        return self.variant in WRITTEN

    @property
    def source(self) -> str:
        return SOURCES[self.arm]

    @cached_property
    def objective(self) -> RetrievalLM:
        return self.section.objective(self.arm, self.variant)

    @property
    def matter(self) -> AbstractReadingMatter:
        """The passages and queries that the model is trained on."""
        return text_of(self.plan) if self.section.corpus else self.world

    @property
    def world(self) -> ReadWorld:
        """The world of facts that the model reads; not available for real text."""
        return read_world(self.section.world(self.variant), self.section.world_seed, self.plan.model.positions)

    @cached_property
    def warm(self) -> WarmModel | None:
        """The retriever that the model starts from; None if it has no retriever."""
        if self.source not in ("frozen", "learned"):
            return None
        passages = self.section.world(self.variant).passages
        return WarmModel(models=self.models, passages=passages, seed=self.seed)

    @cached_property
    def warmed(self) -> WarmedReader | None:
        """The pretrained reader that the model starts from; None if it starts from random weights."""
        return WarmedReader(models=self.models, seed=self.seed) if self.section.read_updates else None

    @cached_property
    def exchanged(self) -> "ArmModel | None":
        """The trained model from which this one takes parts; None if it takes none."""
        return dataclasses.replace(self, variant="") if self.variant in EXCHANGES else None

    @cached_property
    def key(self) -> str:
        """Key of everything that the weights depend on."""
        return digest([ARMS_VERSION, self.arm, self._matter, self._begins, self.objective, settings_key(self.config)])

    @cached_property
    def reader_key(self) -> str:
        """Key of everything that the initial reader and the model's questions depend on."""
        parts = [] if self.exchanged is None else [self.exchanged.key, self.variant]
        parts += ["written"] if self.writes else []
        parts += ["warmed", self.warmed.key] if self.warmed is not None else []
        return digest([ARMS_VERSION, "reader", self._matter, self.plan.model, self.plan.match, self.seed, parts])

    @cached_property
    def first_key(self) -> str:
        """Key of the complete model before its first update."""
        objective = self.objective
        return digest([self.reader_key, self.source, self._begins, objective.k, objective.level])

    @property
    def _matter(self) -> list[Any]:
        return matter_key(self.plan, self.section.world(self.variant))

    @property
    def _begins(self) -> list[Any]:
        begins: list[Any] = [self.plan.model, self.plan.match, self.seed]
        if self.warm is not None:
            begins += [self.warm.key, self.variant == "cold" or not self.section.warm_updates]
        if self.exchanged is not None:
            begins += [self.exchanged.key, self.variant]
        if self.warmed is not None:
            begins += ["warmed", self.warmed.key]
        return [*begins, "written"] if self.writes else begins

    @property
    def config(self) -> TrainConfig:
        updates = self.section.updates if self.exchanged is None else self.section.exchange_updates
        return self.settings(updates, 0.5 if self.halved else 1.0)

    @property
    def folder(self) -> Path:
        return self.models.bench.path(READING, self.key)

    @property
    def weights(self) -> Path:
        """Folder of the reader as a plain masked LM or encoder-decoder; the other parts lie next to its weights."""
        return self.folder / "model"

    @property
    def published(self) -> Path:
        return self.models.run.models / self.recipe.name

    def is_trained(self) -> bool:
        return self.models.bench.done(READ, self.key)

    def facts(self) -> dict[str, Any]:
        """Facts about the finished training: its cost, and whether the model has learned."""
        return self.models.bench.read_facts(READ, self.key)

    # -- weights ------------------------------------------------------------------------------------------------------

    def first(self) -> RetrievalModel:
        """The initial model. Its reader (if it generates, its encoder) is the same in all variants of a seed."""
        reader, retriever = self._first_reader(), None
        if self.warm is not None:
            retriever = self.warm.first() if self.variant == "cold" else self.warm.load()
        library = None if self.source == "none" else self.matter.passage_library()
        model = retrieval_model(self.objective, reader, library, retriever)
        if self.exchanged is not None:
            self._put_in(model, self.exchanged.load())
        return model

    def _first_reader(self) -> Any:
        begin = first_writer if self.writes else first_reader
        if self.warmed is None:
            return begin(self.models, self.matter, self.seed)
        warmed = self.warmed.load()
        if not self.writes:
            return warmed
        writer, read = begin(self.models, self.matter, self.seed), warmed.bert.state_dict()
        writer.encoder.load_state_dict({name: read[name] for name in writer.encoder.state_dict()})
        return writer

    def _put_in(self, model: RetrievalModel, trained: RetrievalModel) -> None:
        assert model.retriever is not None
        assert trained.retriever is not None
        if self.variant in ("exchange-both", "exchange-reader"):
            model.reader.load_state_dict(trained.reader.state_dict())
        if self.variant in ("exchange-both", "exchange-retriever"):
            model.retriever.load_state_dict(trained.retriever.state_dict())

    def train(self, recorders: Recorders = lambda _: ()) -> tuple[RetrievalModel, TrainResult]:
        """Train the model, or finish an interrupted training, with the hooks that `recorders` makes for it."""
        model, result = self._train_into(self.folder, recorders, self.folder / LEARNING)
        if is_first():
            if model.retriever is not None:
                with atomic_folder(self.weights / RETRIEVER) as folder:
                    model.retriever.save_pretrained(folder)
                    self.matter.tokenizer.save_pretrained(folder)
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        return model, result

    def train_again(self, folder: Path, recorders: Recorders = lambda _: ()) -> None:
        """Repeat the training to the same weights; only the results of hooks and the checkpoints are kept."""
        self._train_into(folder, recorders, None)
        if is_first():
            self.snapshots.adopt(Snapshots(folder / SNAPSHOTS))
            shutil.rmtree(folder)
        wait_for_all()

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> list[int]:
        """The updates whose weights the plan keeps, including 0 and the last; empty if it keeps none."""
        num = self.section.checkpoints
        if not num or self.variant:
            return []
        return sorted({round(one * self.config.updates / num) for one in range(num + 1)})

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.folder / SNAPSHOTS)

    def lacks_checkpoints(self) -> bool:
        """Whether a checkpoint that the plan requests is missing or damaged."""
        return not set(self.wanted) <= set(self.snapshots.kept())

    def _train_into(
        self, folder: Path, recorders: Recorders, learning: Path | None
    ) -> tuple[RetrievalModel, TrainResult]:
        model = self.first()
        index = IndexRefresh(model)
        hooks: list[TrainingHook] = [index, *recorders(model)]
        if learning is not None:
            hooks.insert(1, _KeepLearning(index, learning))
        wanted = self.wanted
        kept = SnapshotPlan(steps=lambda _: wanted) if wanted else None
        data = self.matter.queries
        return model, train(self.objective, self.config, data, model, folder, hooks=hooks, snapshots=kept)

    def load(self, trained: bool = True, update: int | None = None) -> RetrievalModel:
        """The model in evaluation mode with an index of its own weights, at a kept `update` or at the end."""
        model = self.first()
        if trained:
            weights = self.weights if update is None else self.snapshots.path(update)
            load_weights(model, weights, self.objective.exported)
        model.to(usable_device(self.plan.training.device)).eval()
        if model.retriever is not None and model.passage_library is not None:
            model.passage_library.dense = model.passage_library.embed(model.retriever.passages)
        return model


class _KeepLearning(TrainingHook):
    """Writes the learning statistics of all updates once they are complete."""

    name = "learning"

    def __init__(self, index: IndexRefresh, path: Path) -> None:
        self._index, self._path = index, path

    def on_train_end(self, module: PreTrainedModel) -> None:
        if is_first():
            write_table(self._path, self._index.table, RETRIEVAL_LEARNING)


def arm_models(models: StudyModels) -> list[ArmModel]:
    """All models that the plan requests: for each seed the plain ones and "null-share", then the other variants."""
    section = models.plan.retrieval
    if not section.on:
        return []
    seeds = section.seeds or models.plan.seeds
    first = [(arm, variant, seed) for seed in seeds for arm, variant in _core(section)]
    others = [variant for variant in section.variants if variant != "null-share"]
    later = [
        (arm, label, seed)
        for variant in others
        for label in (EXCHANGES if variant == "exchange" else (variant,))
        for arm in section.arms_of(variant)
        for seed in seeds
    ]
    named = [{"arm": arm, "variant": variant, "seed": seed} for arm, variant, seed in [*first, *later]]
    return [ArmModel(models=models, **one) for one in named]  # type: ignore[arg-type]


def plain_arms(models: StudyModels) -> list[ArmModel]:
    """The plain models at the full rate, all of which must learn."""
    return [model for model in arm_models(models) if not model.variant]


def at_half_rate(models: StudyModels) -> bool:
    """Whether models at half the rate count because a plain model learned nothing; all plain ones must be trained."""
    return models.plan.retrieval.repeat and not all(model.facts()["learned"] for model in plain_arms(models))


def _core(section: RetrievalPlan) -> list[tuple[str, str]]:
    plain = [(arm, "") for arm in section.arms]
    control = "null-share" in section.variants
    return plain + [(arm, "null-share") for arm in OF_VARIANTS["null-share"] if control and arm in section.arms]


def relative_cost(model: ArmModel | WarmModel | WarmedReader) -> float:
    """Cost of an update relative to a closed-book reader, measured at width 64 on a CPU."""
    if isinstance(model, WarmModel):
        return 1.5
    if isinstance(model, WarmedReader):
        return 3.0
    if model.variant == "null-share":
        return 0.3
    return {"none": 1.0, "gold": 3.0, "random": 3.0, "bm25": 4.5, "frozen": 5.0, "learned": 6.5}[model.source]
