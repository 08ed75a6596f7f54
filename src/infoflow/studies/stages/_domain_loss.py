"""How well a model predicts text of the domain and general text, before it is tuned."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.adaptation import DOMAIN_LOSS
from infoflow.corpus import Corpus
from infoflow.flow import agree
from infoflow.foundation import current_display, digest
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._data import StudyData, at_most
from .._parts import without
from .._specialised import Specialised
from .._study_domain import AS_IS
from .._study_models import StudyModels
from .._word_loss import loss_per_word
from .._workbench import Part
from ._specialise import Specialise
from ._stage import AbstractStage
from ._train import train_stage_key

_MEASURED = "domain-loss"
_VERSION = 1  # raise when the same models are measured otherwise
TEXTS = ("domain", "general")


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureDomain(AbstractStage):
    """One model as it is, continued or from scratch: its pretraining loss per word on both texts."""

    kind = "predict"
    models: StudyModels
    recipe: Recipe
    model: Specialised | None  # None: as it is

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureDomain]":
        """Of each recipe of the domain the general model, and what came of it in the domain."""
        if not models.plan.domain.corpus:
            return []
        as_is = [
            cls(models=models, recipe=recipe, model=None, needs=(train_stage_key(models, recipe),))
            for recipe in models.domain.recipes
        ]
        special = [stage for stage in before if isinstance(stage, Specialise) and stage.model.task is None]
        return as_is + [
            cls(models=models, recipe=stage.model.recipe, model=stage.model, needs=(stage.key,)) for stage in special
        ]

    @property
    def strategy(self) -> str:
        return self.model.strategy if self.model else AS_IS

    @cached_property
    def key(self) -> str:
        weights = self.model.key if self.model else self.models.train_key(self.recipe)
        texts = [self.models.domain.key(name) for name in self.models.plan.domain.strategies]
        asked = [self.models.plan.domain.loss_sentences, self.models.plan.analysis.sentences]
        own = [self.models.data_key, weights, self.recipe.name, self.strategy]
        return digest([_VERSION, DOMAIN_LOSS.version, own, texts, asked])

    @property
    def label(self) -> str:
        return f"predict words with {self.model.name if self.model else self.recipe.name}"

    @property
    def estimate(self) -> float:
        return 0.02

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_MEASURED, self.key))

    def run(self) -> dict[str, Any]:
        schemas = {DOMAIN_LOSS.name: DOMAIN_LOSS}
        self.models.bench.tables(_MEASURED, self.key, schemas, lambda: {DOMAIN_LOSS.name: self._rows()})
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.recipe).keys()
        return {name: frame.assign(**keys) for name, frame in self.models.bench.read(_MEASURED, self.key).items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {DOMAIN_LOSS.name: DOMAIN_LOSS.with_keys(*KEYS)}

    def _rows(self) -> pd.DataFrame:
        models, subject = self.models, Subject(recipe=self.recipe)
        whole = self.model.whole() if self.model else models.whole(subject, models.load(subject))
        data = self.model.data if self.model else models.data
        objective, positions = models.objective(self.recipe), models.plan.model.positions
        reads, rows = models.plan.reads(objective), []
        training = data.arranged(data.train, positions, objective, reads)
        for name, text in self._texts().items():
            arranged = data.arranged(text, positions, objective, reads)
            row = loss_per_word(whole, objective, arranged, text, training)
            rows.append({"strategy": self.strategy, "text": name, **row})
        told = ", ".join(f"{row['value']:.2f} of {row['text']} text" for row in rows)
        current_display().note(f"{self.label.removeprefix('predict words with ')}: nats per word {told}.")
        return pd.DataFrame(rows)

    def _texts(self) -> dict[str, Corpus]:
        """The same sentences for every model: of both test parts what the other text's training part lacks."""
        domain: StudyData = self.models.domain.data(self.models.plan.domain.strategies[0])
        general, most = self.models.data, self.models.plan.domain.loss_sentences
        parts = (without(domain.analysed, [general.train]), without(general.analysed, [domain.train]))
        return {name: at_most(part, most) for name, part in zip(TEXTS, parts, strict=True)}
