"""Train a converged model on with closed self-attention, beside the same training with all of it open.

What is lost at test time a model may have had no reason to do elsewhere; what is still lost after it was trained on
that way, only the closed context can give. The published models stay as they are: each stage trains a copy.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import Reader, agree
from infoflow.foundation import current_display, digest
from infoflow.heads import (
    ENCODER_CONTEXT,
    Closing,
    VariantScores,
    closed_attention,
    closings_of,
    context_bleu,
    context_rows,
    context_scores,
)
from infoflow.models import Model
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._data import at_most
from .._scopes import kinds_of
from .._study_models import StudyModels
from .._workbench import Part
from ._pruning_points import pass_options
from ._stage import AbstractStage
from ._train import train_stage_key

_OPEN = ""
"""In place of a kind: nothing is closed, the control of all kinds."""
_RETRAINED = "retrained"
_FOLDER = "retraining"
_WARMUP = 0.1  # share of the updates
_VERSION = 1  # raise when the same plan trains or scores otherwise


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrain(AbstractStage):
    """One model trained on with one kind of self-attention closed at all blocks, or, the control, with none.

    The control's stage also translates with the converged model, each kind closed at all blocks and at the upper half.
    """

    kind = "retrain"
    models: StudyModels
    recipe: Recipe
    closed: str  # kind of self-attention, or `_OPEN`

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Retrain]":
        """For each model that the plan names the control, then each of its kinds behind it."""
        plan, stages = models.plan, list[Retrain]()
        for recipe in plan.recipes(plan.context.objectives) if plan.context.on else []:
            control = cls(models=models, recipe=recipe, closed=_OPEN, needs=(train_stage_key(models, recipe),))
            kinds = _kinds(models, recipe)
            stages += [control, *(dataclasses.replace(control, closed=k, needs=(control.key,)) for k in kinds)]
        return stages

    @property
    def estimate(self) -> float:
        plan = self.models.plan
        return 0.1 + 1.5 * plan.context.updates / plan.training.updates  # two stacks, and eager attention

    @cached_property
    def key(self) -> str:
        plan, analysis = self.models.plan.context, self.models.plan.analysis
        scored = [analysis.sentences, plan.sentences, plan.bleu_sentences]
        more = [] if self.closed else [_kinds(self.models, self.recipe)]  # those it translates with
        return digest([_VERSION, ENCODER_CONTEXT.version, self._trained_key(self.closed), scored, *more])

    @property
    def label(self) -> str:
        how = f"{self.closed} closed" if self.closed else "all open"
        return f"retrain {self.recipe.name}, {how}"

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_RETRAINED, self.key))

    def run(self) -> dict[str, Any]:
        schemas = {ENCODER_CONTEXT.name: ENCODER_CONTEXT}
        self.models.bench.tables(_RETRAINED, self.key, schemas, lambda: {ENCODER_CONTEXT.name: self._rows()})
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.recipe).keys()
        return {name: frame.assign(**keys) for name, frame in self.models.bench.read(_RETRAINED, self.key).items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {ENCODER_CONTEXT.name: ENCODER_CONTEXT.with_keys(*KEYS)}

    # -- what is measured ---------------------------------------------------------------------------------------------

    def _rows(self) -> pd.DataFrame:
        updates = self.models.plan.context.updates
        retrained = self._retrained(self.closed)
        if self.closed:
            before, closing = self._retrained(_OPEN), self._all(retrained)
        else:
            before, closing = self.models.load(Subject(recipe=self.recipe)), Closing.none()
        frames = [
            context_rows(_against(_losses(self, before, []), _losses(self, retrained, [closing])), [closing], updates)
        ]
        if self._translates:
            few = self._few
            scores = _against(context_bleu(before, few, []), context_bleu(retrained, few, [closing]))
            frames.append(context_rows(scores, [closing], updates))
            if not self.closed:
                frames += [self._translated(before, kind) for kind in _kinds(self.models, self.recipe)]
        found = pd.concat(frames, ignore_index=True)
        _tell(self.recipe, found)
        return found

    def _translated(self, model: Model, kind: str) -> pd.DataFrame:
        """BLEU of the converged model with all blocks of a kind closed, and with their upper half."""
        every = closings_of(model, kind)
        half = every[0].number // 2
        wanted = [one for one in every if one.which == "all" or (one.which, one.number) == ("upper", half)]
        return context_rows(context_bleu(model, self._few, wanted), wanted)

    def _all(self, model: Model) -> Closing:
        return closings_of(model, self.closed)[0]

    @property
    def _translates(self) -> bool:
        return self.models.objective(self.recipe).needs_translation and self.models.plan.context.bleu_sentences > 0

    @property
    def _few(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.context.bleu_sentences)

    # -- training -----------------------------------------------------------------------------------------------------

    def _trained_key(self, closed: str) -> str:
        """What the weights depend on; of the control it is the same for every kind."""
        plan = self.models.plan.context
        return digest([_VERSION, self.models.train_key(self.recipe), closed, plan.updates, plan.learning_rate])

    def _retrained(self, closed: str) -> Model:
        """The converged model trained on, or as far as it was trained on before; then it is read from its folder."""
        models, plan = self.models, self.models.plan.context
        folder = models.bench.path(_FOLDER, self._trained_key(closed))
        model = models.load(Subject(recipe=self.recipe))
        blocks = closings_of(model, closed)[0].blocks if closed else frozenset()
        # The control too runs through infoflow's attention: its dropout then draws the same numbers.
        with closed_attention(model, sorted(blocks)):
            models.train_into(
                self.recipe,
                folder,
                [],
                model.module,
                updates=plan.updates,
                max_source_tokens=None,
                learning_rate=plan.learning_rate,
                warmup=_WARMUP,
                schedule="linear",
                end_learning_rate=0.0,
                evaluate_every=0,
                save_every=plan.save_every,
                keep_last=1,
            )
        model.module.eval()
        models.drop_checkpoints(folder)
        return model


def _kinds(models: StudyModels, recipe: Recipe) -> list[str]:
    """Kinds of self-attention that the plan closes and the model has."""
    there = kinds_of(models.objective(recipe).layout)
    return [kind for kind in dict.fromkeys(models.plan.context.kinds) if kind in there]


def _losses(stage: Retrain, model: Model, closings: Sequence[Closing]) -> VariantScores:
    """Of the analysed sentences, those that every model of the study is scored on."""
    models, options = stage.models, pass_options(stage.models, stage.recipe)
    reader = Reader(
        model,
        models.data.analysed,
        max_length=options.max_length,
        seed=options.seed,
        decoder=model.task == "seq2seq",
        ranks_from=models.data.train,
        corruption=options.corruption,
    )
    return context_scores(reader, closings, models.plan.context.sentences or None, options)


def _against(before: VariantScores, after: VariantScores) -> VariantScores:
    """Scores of one model as the scores before those of another, on the same sentences: `before` has none closed, and
    the last scores of losses, of frequencies, are the same in both."""
    sums_VKS = np.concatenate([before.sums_VKS[:1], after.sums_VKS[1:2], before.sums_VKS[1:]])
    return dataclasses.replace(after, sums_VKS=sums_VKS)


def _tell(recipe: Recipe, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    how = (
        f"with {first['kind']} closed, less than with all open" if first["kind"] else "with all open, less than before"
    )
    current_display().note(f"{recipe.name} trained on {how}: {first['value']:+.3g} nats per token.")
