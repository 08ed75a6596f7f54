"""One seed's masked LM aligned to the same seed's translation encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.alignment import (
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
from infoflow.flow import agree
from infoflow.foundation import current_display, digest
from infoflow.models import Model
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._data import at_most
from .._plan_sections import AlignmentPlan
from .._scores import bleu_scores
from .._study_models import StudyModels
from .._workbench import Part
from ._stage import AbstractStage
from ._train import Train, train_stage_key

SOURCE, TARGET = "masked-lm", "translation"
_ALIGNED = "aligned"
_VERSION = 1  # raise when the same plan aligns otherwise


@dataclass(frozen=True, kw_only=True, eq=False)
class Align(AbstractStage):
    """The encoder of `source` mapped onto that of `target`, beside its controls."""

    kind = "align"
    models: StudyModels
    source: Recipe
    target: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Align]":
        """Each seed's masked LM to its translation model, where the plan has both."""
        if not models.plan.alignment.on:
            return []
        recipes = [stage.recipe for stage in before if isinstance(stage, Train)]
        plain = {(one.objective.name, one.seed): one for one in recipes if not one.objective.variant}
        pairs = [(plain.get((SOURCE, seed)), plain.get((TARGET, seed))) for seed in models.plan.seeds]
        return [
            cls(models=models, source=a, target=b, needs=(train_stage_key(models, a), train_stage_key(models, b)))
            for a, b in pairs
            if a is not None and b is not None
        ]

    @property
    def estimate(self) -> float:
        return 1.5

    @cached_property
    def key(self) -> str:
        plan, analysis = self.models.plan, self.models.plan.analysis
        trained = [self.models.train_key(recipe) for recipe in (self.source, self.target)]
        looked_at = [analysis.sentences, analysis.bleu_sentences, analysis.beams]
        return digest([_VERSION, ALIGNMENT.version, trained, plan.alignment, looked_at])

    @property
    def label(self) -> str:
        return f"align {self.source.name} to {self.target.name}"

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_ALIGNED, self.key))

    def run(self) -> dict[str, Any]:
        schemas = {ALIGNMENT.name: ALIGNMENT}
        self.models.bench.tables(_ALIGNED, self.key, schemas, lambda: {ALIGNMENT.name: self._align()})
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.source).keys()
        return {name: frame.assign(**keys) for name, frame in self.models.bench.read(_ALIGNED, self.key).items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {ALIGNMENT.name: ALIGNMENT.with_keys(*KEYS)}

    def _align(self) -> pd.DataFrame:
        source, target = (self.models.load(Subject(recipe=recipe)) for recipe in (self.source, self.target))
        current_display().note(f"Aligning {source.name} to {target.name}.")
        plan, data, seed = self.models.plan.alignment, self.models.data, self.source.seed
        folder = self.models.bench.path("alignments", self.key)
        config, sentences = _explicit(plan, seed), at_most(data.train, plan.sentences)
        encoders = align_with_controls(source, target, sentences, folder, config=config)
        translations: list[tuple[Kind, Model]] = []
        if plan.pairs:
            tuned = self._implicit(source, target, folder / "implicit")
            linked = LinkedSentences(tuned, target, sentences, IdentityLinks(), max_length=config.max_length)
            encoders["implicit"] = linearly_aligned(tuned, target, linked, config)
            translations = [("unaligned", transplanted(source, target)), ("implicit", tuned), ("target", target)]
        scores = evaluate_alignment(encoders, source, target, at_most(data.analysed, plan.held_out))
        return pd.concat([scores, *(self._bleu(kind, model, source, target) for kind, model in translations)])

    def _implicit(self, source: Model, target: Model, out: Path) -> Model:
        plan = self.models.plan.alignment
        config = ImplicitConfig(
            learning_rate=plan.learning_rate,
            batch_sentences=plan.batch_sentences,
            max_length=self.models.plan.model.positions,
            seed=self.source.seed,
            save_every=plan.save_every,
        )
        return align_implicit(source, target, at_most(self.models.data.train, plan.pairs), out, config)

    def _bleu(self, kind: Kind, model: Model, source: Model, target: Model) -> pd.DataFrame:
        """BLEU of an encoder under the target's decoder."""
        plan = self.models.plan.analysis
        scores = bleu_scores(model, self.models.data.test, plan.bleu_sentences, plan.beams, "test")
        top = len(model.anatomy.stack("encoder").layers)
        names = {"source_model": source.name, "target_model": target.name}
        keys = {"kind": kind, "states": "encoder", "layer": top, **names}
        return ALIGNMENT.conform(scores.drop(columns="split").assign(**keys))


def _explicit(plan: AlignmentPlan, seed: int) -> ExplicitConfig:
    return ExplicitConfig(
        learning_rate=plan.learning_rate, batch_sentences=plan.batch_sentences, seed=seed, save_every=plan.save_every
    )
