"""Initial models of `[retrieval]`: a warmed-up retriever, a new reader, or a pretrained reader."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infoflow.architectures import build
from infoflow.corpus import FACTS_VERSION, FactConfig
from infoflow.foundation import digest, hash64
from infoflow.results import BERT
from infoflow.studies._plan import StudyPlan
from infoflow.studies._study_models import StudyModels
from infoflow.training import TrainConfig, TrainResult, build_models, load_weights, train, usable_device

from ..measures import knowledge
from ..models import RetrievalModel, Retriever, build_retriever, retriever_config
from ..objectives._inverse_cloze import InverseCloze
from ..objectives._retrieval_lm import RetrievalLM, retrieval_model
from ..settings import RetrievalPlan
from ._reading_matter import AbstractReadingMatter, ReadText, ReadWorld, read_text, read_world

WARMING = "warming"
_RETRIEVER_LAYERS = 2
ARMS_VERSION = 1  # increase when the same plan trains other models
_FREE = ("device", "log_every", "evaluate_every", "save_every", "keep_last")
WARMING_READERS = "warming-readers"


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedModel:
    """A model of one seed, trained as the section says."""

    models: StudyModels
    seed: int

    @property
    def plan(self) -> StudyPlan:
        return self.models.plan

    @property
    def section(self) -> RetrievalPlan:
        return self.models.plan.retrieval

    def settings(self, updates: int, rate: float = 1.0) -> TrainConfig:
        """Training settings; `rate` is a factor on the section's learning rate."""
        rate, positions = rate * self.section.learning_rate, self.plan.model.positions
        return self.section.config(self.plan.training, self.seed, positions, updates, rate)


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmModel(SeedModel):
    """A retriever of one seed, trained only on the inverse cloze task; the seed's variants start from it."""

    passages: str  # the kind of passages that it embeds

    @property
    def matter(self) -> AbstractReadingMatter:
        """The text, or a world in one fixed wording, since passages do not depend on how queries are worded."""
        if self.section.corpus:
            return text_of(self.plan)
        return read_world(self._config, self.section.world_seed, self.plan.model.positions)

    @property
    def _config(self) -> FactConfig:
        return dataclasses.replace(self.section.world(), passages=self.passages, wording="different")  # type: ignore[arg-type]

    @cached_property
    def key(self) -> str:
        """Key of everything that the weights depend on."""
        shape = [_RETRIEVER_LAYERS, self.section.retriever_width, self.section.vector_width]
        world = matter_key(self.plan, self._config)
        return digest([ARMS_VERSION, "warm", world, self.plan.model, shape, settings_key(self.config), InverseCloze()])

    @property
    def config(self) -> TrainConfig:
        return self.settings(max(self.section.warm_updates, 1))

    @property
    def folder(self) -> Path:
        return self.models.bench.path(WARMING, self.key)

    @property
    def name(self) -> str:
        return f"retriever/seed-{self.seed}" + (f" of {self.passages}" if self.passages != "entity" else "")

    def first(self) -> Retriever:
        """The retriever with the seed's random weights."""
        model, reader = self.plan.model, first_reader(self.models, self.matter, self.seed)
        width = self.section.retriever_width or model.width
        shape = {"hidden_size": width, "intermediate_size": model.feedforward * width // model.width}
        shape |= {"num_hidden_layers": _RETRIEVER_LAYERS, "vector_width": self.section.vector_width}
        return build_retriever(retriever_config(reader.config, **shape), self.seed)

    def train(self) -> TrainResult:
        """Train it, or finish an interrupted training."""
        return train(InverseCloze(), self.config, self.matter.cloze, self.first(), self.folder)

    def load(self) -> Retriever:
        """The retriever after the inverse cloze task, or with initial weights if the plan has no such updates."""
        retriever = self.first()
        if self.section.warm_updates:
            load_weights(retriever, self.folder / "model")
        return retriever


def first_reader(models: StudyModels, matter: AbstractReadingMatter, seed: int) -> Any:
    """The masked LM of a seed before its first update."""
    plan = models.plan
    objective = plan.retrieval.objective("closed-book")
    built = build_models([objective], plan.model, matter.vocabulary, seed=seed, match=plan.match)
    return built[objective.name]


def first_writer(models: StudyModels, matter: AbstractReadingMatter, seed: int) -> Any:
    """The encoder-decoder of a seed before its first update, with embeddings and encoder of the masked LM."""
    plan = models.plan
    return build(BERT.name, "encoder-decoder", plan.model, matter.vocabulary, seed=seed, match=plan.match)


def settings_key(config: TrainConfig) -> dict[str, Any]:
    """The training settings that affect the weights."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}


def matter_key(plan: StudyPlan, config: FactConfig) -> list[Any]:
    """Key of what is read, which is a world, or real text if the plan names one."""
    section = plan.retrieval
    return ["text", text_of(plan).digest] if section.corpus else [FACTS_VERSION, config, section.world_seed]


def text_of(plan: StudyPlan) -> ReadText:
    """The real text that the plan's readers read."""
    section = plan.retrieval
    return read_text(section.corpus, section.test, plan.corpus.vocabulary, plan.model.positions, section.answer_tokens)


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmedReader(SeedModel):
    """The masked LM of one seed, pretrained like `read-gold` on another world; all variants start from it.

    The other world has the study's settings, hence its words, relations and tokens, but its own seed. Without a
    passage, its reader can only guess about the study's world.
    """

    @property
    def world_seed(self) -> int:
        """Seed of the other world: a hash, since the next seed after the study's gives the unread sentences."""
        return hash64("warmed-reader", self.section.world_seed) % 2**31

    @property
    def matter(self) -> ReadWorld:
        return read_world(self.section.world(), self.world_seed, self.plan.model.positions)

    @cached_property
    def objective(self) -> RetrievalLM:
        """The objective of `read-gold`, with as many queries without a passage as in the variants."""
        return self.section.objective("read-gold")

    @cached_property
    def key(self) -> str:
        """Key of everything that its weights depend on."""
        world = [FACTS_VERSION, self.section.world(), self.world_seed]
        begins = [self.plan.model, self.plan.match, self.seed]
        return digest([ARMS_VERSION, "warmed-reader", world, begins, self.objective, settings_key(self.config)])

    @property
    def config(self) -> TrainConfig:
        return self.settings(self.section.read_updates)

    @property
    def folder(self) -> Path:
        return self.models.bench.path(WARMING_READERS, self.key)

    @property
    def name(self) -> str:
        return f"reader/seed-{self.seed}"

    def first(self) -> RetrievalModel:
        """The model with the seed's random weights."""
        reader = first_reader(self.models, self.matter, self.seed)
        return retrieval_model(self.objective, reader, self.matter.passage_library())

    def train(self) -> TrainResult:
        """Train it, or finish an interrupted training."""
        return train(self.objective, self.config, self.matter.queries, self.first(), self.folder)

    def load(self) -> Any:
        """The reader alone, a masked LM; every variant adds its own initial weighting of passages."""
        reader = first_reader(self.models, self.matter, self.seed)
        load_weights(reader, self.folder / "model")
        return reader

    def reads(self) -> float | None:
        """Accuracy with the gold passage on held-out facts of the other world; None if there are none."""
        world = self.matter.world
        facts = world.of_kind("held out")
        if not facts:
            return None
        reader = self.load().to(usable_device(self.plan.training.device)).eval()
        found = knowledge(reader, world, self.matter.tokenizer, documents=("gold",), facts=facts)
        return float(found.loc[(found["metric"] == "p1") & (found["weight"] == -1), "value"].iloc[0])
