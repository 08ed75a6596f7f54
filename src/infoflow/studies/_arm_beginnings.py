"""What models of `[retrieval]` begin with: a retriever that was warmed up, a reader of their seed; keys of both."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infoflow.architectures import build
from infoflow.corpus import FACTS_VERSION, FactConfig
from infoflow.foundation import digest
from infoflow.objectives import InverseCloze
from infoflow.results import BERT
from infoflow.retrieval import Retriever, build_retriever, retriever_config
from infoflow.training import TrainConfig, TrainResult, build_models, load_weights, train

from ._plan import StudyPlan
from ._read_text import ReadText, read_text
from ._read_world import read_world
from ._reading_matter import AbstractReadingMatter
from ._study_models import StudyModels

WARMING = "warming"
ARMS_VERSION = 1  # raise when the same plan trains other models
_FREE = ("device", "log_every", "evaluate_every", "save_every", "keep_last")


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmModel:
    """A retriever of one seed that the inverse cloze task alone has trained: the start of arms that have one."""

    models: StudyModels
    passages: str  # the kind of passages that it embeds
    seed: int

    @property
    def matter(self) -> AbstractReadingMatter:
        """Passages do not depend on how queries are worded."""
        if self.models.plan.retrieval.corpus:
            return text_of(self.models.plan)
        return read_world(self._config, self.models.plan.retrieval.world_seed, self.models.plan.model.positions)

    @property
    def _config(self) -> FactConfig:
        config = self.models.plan.retrieval.world()
        return dataclasses.replace(config, passages=self.passages, wording="different")  # type: ignore[arg-type]

    @cached_property
    def key(self) -> str:
        """What its weights depend on."""
        asked = self.models.plan.retrieval
        shape = [asked.retriever_layers, asked.retriever_width, asked.vector_width]
        plan, world = self.models.plan, matter_key(self.models.plan, self._config)
        return digest([ARMS_VERSION, "warm", world, plan.model, shape, settings_key(self.config), InverseCloze()])

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        plan = self.models.plan
        asked, positions = plan.retrieval, plan.model.positions
        return asked.config(plan.training, self.seed, positions, max(asked.warm_updates, 1), asked.learning_rate)

    @property
    def folder(self) -> Path:
        return self.models.bench.path(WARMING, self.key)

    @property
    def name(self) -> str:
        """For people."""
        return f"retriever/seed-{self.seed}" + (f" of {self.passages}" if self.passages != "entity" else "")

    def first(self) -> Retriever:
        """With random weights of the seed."""
        plan = self.models.plan
        asked, reader = plan.retrieval, first_reader(self.models, self.matter, self.seed)
        width = asked.retriever_width or plan.model.width
        shape = {"hidden_size": width, "intermediate_size": plan.model.feedforward * width // plan.model.width}
        shape |= {"num_hidden_layers": asked.retriever_layers, "vector_width": asked.vector_width}
        return build_retriever(retriever_config(reader.config, **shape), self.seed)

    def train(self) -> TrainResult:
        """Train it, or as much of it as is missing."""
        return train(InverseCloze(), self.config, self.matter.cloze, self.first(), self.folder)

    def load(self) -> Retriever:
        """As the inverse cloze task left it; as it began where the plan has no such updates."""
        retriever = self.first()
        if self.models.plan.retrieval.warm_updates:
            load_weights(retriever, self.folder / "model")
        return retriever


def first_reader(models: StudyModels, matter: AbstractReadingMatter, seed: int) -> Any:
    """The masked LM of a seed before its first update."""
    plan = models.plan
    objective = plan.retrieval.objective("closed-book")
    built = build_models([objective], plan.model, matter.vocabulary, seed=seed, match=plan.match)
    return built[objective.name]


def first_writer(models: StudyModels, matter: AbstractReadingMatter, seed: int) -> Any:
    """An encoder-decoder of a seed before its first update: words and encoder are those of the masked LM."""
    plan = models.plan
    return build(BERT.name, "encoder-decoder", plan.model, matter.vocabulary, seed=seed, match=plan.match)


def settings_key(config: TrainConfig) -> dict[str, Any]:
    """Settings of training that its weights depend on."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}


def matter_key(plan: StudyPlan, config: FactConfig) -> list[Any]:
    """What is read about: a world, or the text that the plan names instead."""
    asked = plan.retrieval
    return ["text", text_of(plan).digest] if asked.corpus else [FACTS_VERSION, config, asked.world_seed]


def text_of(plan: StudyPlan) -> ReadText:
    """The real text that the plan's readers read."""
    asked = plan.retrieval
    return read_text(asked.corpus, asked.test, plan.corpus.vocabulary, plan.model.positions, asked.answer_tokens)
