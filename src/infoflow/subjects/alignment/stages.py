"""Stages of a study on alignment: one seed's masked LM is aligned to the same seed's translation encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.foundation import current_display
from infoflow.models import Model
from infoflow.results import Recipe, Subject
from infoflow.studies._data import at_most
from infoflow.studies._scores import bleu_scores
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractStage, AbstractTableStage, OfModels
from infoflow.studies.stages._train import Train

from .measures import (
    ALIGNMENT,
    ExplicitConfig,
    IdentityLinks,
    ImplicitConfig,
    Kind,
    LinkedSentences,
    align_implicit,
    align_with_controls,
    evaluate_alignment,
    linearly_aligned,
    transplanted,
)

SOURCE, TARGET = "masked-lm", "translation"
_VERSION = 1  # increase when the same plan aligns differently


@dataclass(frozen=True, kw_only=True, eq=False)
class Align(OfModels, AbstractTableStage):
    """Map the encoder of `source` onto that of `target`, with controls."""

    kind = "align"
    named = "align {self.source.name} to {self.target.name}"
    stored = "aligned"
    makes = (ALIGNMENT,)
    guess = 1.5
    source: Recipe
    target: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Align]":
        """Each seed's masked LM with its translation model, if the plan has both."""
        if not models.plan.alignment.on:
            return []
        trained = [stage for stage in before if isinstance(stage, Train) and not stage.recipe.objective.variant]
        plain = {(stage.recipe.objective.name, stage.recipe.seed): stage for stage in trained}
        pairs = [(plain.get((SOURCE, seed)), plain.get((TARGET, seed))) for seed in models.plan.seeds]
        return [
            cls(models=models, source=a.recipe, target=b.recipe, needs=(a.key, b.key))
            for a, b in pairs
            if a is not None and b is not None
        ]

    def depends(self) -> list[Any]:
        plan, analysis = self.models.plan, self.models.plan.analysis
        trained = [self.models.train_key(recipe) for recipe in (self.source, self.target)]
        looked_at = [analysis.sentences, analysis.bleu_sentences, analysis.beams]
        return [_VERSION, ALIGNMENT.version, trained, plan.alignment, looked_at]

    def columns(self) -> dict[str, Any]:
        return Subject(recipe=self.source).keys()

    def make(self) -> pd.DataFrame:
        source, target = (self.models.load(Subject(recipe=recipe)) for recipe in (self.source, self.target))
        current_display().note(f"Aligning {source.name} to {target.name}.")
        plan, data = self.models.plan.alignment, self.models.data
        folder, sentences = self.cache.path("alignments", self.key), at_most(data.train, plan.sentences)
        shared: dict[str, Any] = {
            "learning_rate": plan.learning_rate,
            "batch_sentences": plan.batch_sentences,
            "seed": self.source.seed,
            "save_every": plan.save_every,
        }
        config = ExplicitConfig(**shared)
        encoders = align_with_controls(source, target, sentences, folder, config=config)
        translations: dict[Kind, Model] = {}
        if plan.pairs:
            implicit = ImplicitConfig(**shared, max_length=self.models.plan.model.positions)
            tuned = align_implicit(source, target, at_most(data.train, plan.pairs), folder / "implicit", implicit)
            linked = LinkedSentences(tuned, target, sentences, IdentityLinks(), max_length=config.max_length)
            encoders["implicit"] = linearly_aligned(tuned, target, linked, config)
            translations = {"unaligned": transplanted(source, target), "implicit": tuned, "target": target}
        scores = evaluate_alignment(encoders, source, target, at_most(data.analysed, plan.held_out))
        return pd.concat([scores, *(self._bleu(kind, model, source, target) for kind, model in translations.items())])

    def _bleu(self, kind: Kind, model: Model, source: Model, target: Model) -> pd.DataFrame:
        plan = self.models.plan.analysis
        scores = bleu_scores(model, self.models.data.test, plan.bleu_sentences, plan.beams, "test")
        top = len(model.anatomy.stack("encoder").layers)
        names = {"source_model": source.name, "target_model": target.name}
        keys = {"kind": kind, "states": "encoder", "layer": top, "least": 0, **names}
        return ALIGNMENT.conform(scores.drop(columns="split").assign(**keys))


STAGES = ((100, Align),)
