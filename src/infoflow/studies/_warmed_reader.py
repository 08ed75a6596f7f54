"""The reading warm start of `[retrieval]`: a reader that learns to read another world before all arms of its seed."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infoflow.corpus import FACTS_VERSION
from infoflow.evidence import knowledge
from infoflow.foundation import digest, hash64
from infoflow.objectives import RetrievalLM, retrieval_model
from infoflow.retrieval import RetrievalModel
from infoflow.training import TrainConfig, TrainResult, load_weights, train, usable_device

from ._arm_beginnings import ARMS_VERSION, first_reader, settings_key
from ._read_world import ReadWorld, read_world
from ._study_models import StudyModels

WARMING_READERS = "warming-readers"


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmedReader:
    """The masked LM of one seed, trained as `read-gold` is, but on another world: the start of all arms.

    The other world has the study's settings, and so its words, relations and tokens, and a seed of its own: facts,
    passages, questions and sentences of the language are drawn anew. What its reader can answer about the study's world
    without a passage is a guess.
    """

    models: StudyModels
    seed: int

    @property
    def world_seed(self) -> int:
        """Of the other world; the next one is taken already, for sentences that no model has read."""
        return hash64("warmed-reader", self.models.plan.retrieval.world_seed) % 2**31

    @property
    def matter(self) -> ReadWorld:
        """The other world."""
        plan = self.models.plan
        return read_world(plan.retrieval.world(), self.world_seed, plan.model.positions)

    @cached_property
    def objective(self) -> RetrievalLM:
        """Reading right passages, and none as often as in the arms."""
        return self.models.plan.retrieval.objective("read-gold")

    @cached_property
    def key(self) -> str:
        """What its weights depend on."""
        plan = self.models.plan
        world = [FACTS_VERSION, plan.retrieval.world(), self.world_seed]
        begins = [plan.model, plan.match, self.seed]
        return digest([ARMS_VERSION, "warmed-reader", world, begins, self.objective, settings_key(self.config)])

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        plan = self.models.plan
        asked, positions = plan.retrieval, plan.model.positions
        return asked.config(plan.training, self.seed, positions, asked.read_updates, asked.learning_rate)

    @property
    def folder(self) -> Path:
        return self.models.bench.path(WARMING_READERS, self.key)

    @property
    def name(self) -> str:
        """For people."""
        return f"reader/seed-{self.seed}"

    def first(self) -> RetrievalModel:
        """With random weights of the seed."""
        reader = first_reader(self.models, self.matter, self.seed)
        return retrieval_model(self.objective, reader, self.matter.passage_library())

    def train(self) -> TrainResult:
        """Train it, or as much of it as is missing."""
        return train(self.objective, self.config, self.matter.queries, self.first(), self.folder)

    def load(self) -> Any:
        """The reader alone, a masked LM; what weighs passages begins anew in every arm."""
        reader = first_reader(self.models, self.matter, self.seed)
        load_weights(reader, self.folder / "model")
        return reader

    def reads(self) -> float | None:
        """Share of right answers about facts of the other world that it was not asked for, with the right passage; None
        where there are none."""
        world = self.matter.world
        facts = world.of_kind("held out")
        if not facts:
            return None
        reader = self.load().to(usable_device(self.models.plan.training.device)).eval()
        found = knowledge(reader, world, self.matter.tokenizer, documents=("gold",), facts=facts)
        return float(found.loc[(found["metric"] == "p1") & (found["weight"] == -1), "value"].iloc[0])
