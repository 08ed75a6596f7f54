"""Train one model of a study and publish it; train a converged model further with closed self-attention."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow import heads
from infoflow._subjects import provided
from infoflow.architectures import kinds_of
from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader, agree, is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.models import Model
from infoflow.results import LEARNING_CURVES, TRAINING_RUNS, Recipe, Subject
from infoflow.training import TrainingHook, read_log

from .._data import at_most
from .._result_cache import Part, check_target, discard, is_intact, is_published, keep_sums, publish
from .._study_models import TRAINED, StudyModels
from ._stage import AbstractFactStage, AbstractStage, AbstractTableStage, OfRecipe

_POINTS = 60
_COSTS = ("updates", "source_tokens", "target_tokens", "supervised_tokens", "seconds", "cpu_seconds")


@dataclass(frozen=True, kw_only=True, eq=False)
class Train(OfRecipe, AbstractFactStage):
    """Trains one recipe, from initial weights to a folder under `models/`."""

    kind = "train"
    named = "train {self.recipe.name}"
    stored = TRAINED
    makes = (TRAINING_RUNS, LEARNING_CURVES)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Train]":
        """One stage for each recipe, longest first; teachers precede their students."""
        every = [
            cls(models=models, recipe=recipe, needs=cls._teachers(models, recipe)) for recipe in models.plan.recipes()
        ]
        return sorted(every, key=lambda stage: (bool(stage.needs), -stage.estimate))

    @property
    def estimate(self) -> float:
        return training_estimate(self.recipe)

    def depends(self) -> list[Any]:
        """Include the name, since two recipes with the same weights are published under two names."""
        return ["train", self.content, self.recipe.name]

    @property
    def content(self) -> str:
        return self.models.train_key(self.recipe)

    def is_done(self) -> bool:
        """Whether the model is trained and published, and its weights have not changed since.

        Raises:
            UserError: The published folder holds something else.
        """
        self._forget_damaged()
        models, recipe = self.models, self.recipe
        return agree(models.is_trained(recipe) and is_published(models.weights(recipe), models.published(recipe)))

    def run(self) -> dict[str, Any]:
        self._forget_damaged()
        models, recipe, facts = self.models, self.recipe, super().run()
        if is_first():
            publish(models.weights(recipe), models.published(recipe), recipe.name)
        wait_for_all()
        return facts

    def tables(self) -> Part:
        """Tables of the training's data, cost and losses."""
        keys, curve = self.columns(), learning_curve(self.models.log(self.recipe))
        return {
            TRAINING_RUNS.name: pd.DataFrame([{**keys, **self.facts()}]),
            LEARNING_CURVES.name: curve.assign(**keys),
        }

    def _forget_damaged(self) -> None:
        """Discard a training run whose weights have changed; it is repeated from its last checkpoint."""
        models, recipe = self.models, self.recipe
        if is_first():
            weights = models.weights(recipe)
            check_target(weights, models.published(recipe))
            if models.is_trained(recipe) and not is_intact(weights):
                discard(weights, recipe.name)
                self.cache.remove(self.stored, self.content)
        wait_for_all()

    def make(self) -> dict[str, Any]:
        models, recipe = self.models, self.recipe
        folder = models.weights(recipe).parent
        hooks = training_hooks(models, recipe, folder)
        module, result = models.train_into(recipe, folder, hooks, snapshots=models.keeping())
        losses = result.validation_losses
        if is_first():
            keep_sums(models.weights(recipe))
        return {
            **{name: getattr(result, name) for name in _COSTS},
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "validation_loss": models.objective(recipe).weighted(losses) if losses else math.nan,
        }

    @classmethod
    def _teachers(cls, models: StudyModels, recipe: Recipe) -> tuple[str, ...]:
        teacher = models.teacher(recipe)
        return () if teacher is None else (cls(models=models, recipe=teacher).key,)


def learning_curve(log: Path) -> pd.DataFrame:
    """`step`, `source_tokens` and `value` for up to 60 intervals of the log, shorter ones where the loss falls fast."""
    if not log.exists():
        return pd.DataFrame(columns=["step", "source_tokens", "value"])
    lines = [line for line in read_log(log) if "loss" in line]
    ends = np.unique(np.geomspace(1, len(lines), _POINTS).round().astype(int)) if lines else np.array([], dtype=int)
    return pd.DataFrame([_mean(lines[start:end]) for start, end in pairwise([0, *ends.tolist()])])


def _mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    last = lines[-1]
    value = float(np.mean([line["loss"] for line in lines]))
    return {"step": last["update"], "source_tokens": last["source_tokens"], "value": value}


def training_estimate(recipe: Recipe) -> float:
    """Cost relative to a masked LM, measured on a CPU at width 64; translation runs two stacks on longer sentences."""
    return {"translation": 3.3, "causal-lm": 1.4, "masked-lm": 1.0}.get(recipe.objective.name, 2.0)


def training_hooks(models: StudyModels, recipe: Recipe, folder: Path) -> list[TrainingHook]:
    """The hooks that subjects add to the training run in `folder`, such as a recorder of loss changes."""
    return [hook for hooks in provided("stages", "training_hooks") for hook in hooks(models, recipe, folder)]


def pass_options(models: StudyModels, recipe: Recipe) -> PassOptions:
    """How sentences are run through models derived from a trained one."""
    return models.plan.analysis.passes(corruption=models.objective(recipe))


# Train a converged model further with closed self-attention, with a fully open control.
#
# A rise of the loss at test time may only show that the model had no reason to get the information elsewhere; a rise
# after retraining shows what only the closed context provides. The published models stay unchanged: each stage trains a
# copy.

_OPEN = ""  # the control's kind, in which nothing is closed
_WARMUP = 0.1  # share of the updates
_VERSION = 1  # to be increased when the same plan trains or scores differently


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrain(OfRecipe, AbstractTableStage):
    """Trains one model further with one kind of self-attention closed in all blocks, or with none as the control.

    The control's stage also scores translations of the converged model, with each kind closed in all blocks and in the
    upper half.
    """

    kind = "retrain"
    named = "retrain {self.recipe.name}, {self.how}"
    stored = "retrained"
    makes = (heads.ENCODER_CONTEXT,)
    closed: str  # kind of self-attention, or `_OPEN`

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Retrain]":
        """For each model that the plan names, the control and then one stage for each of its kinds of attention."""
        plan, stages = models.plan, list[Retrain]()
        for recipe in plan.recipes(plan.context.objectives) if plan.context.on else []:
            control = cls(models=models, recipe=recipe, closed=_OPEN, needs=(Train(models=models, recipe=recipe).key,))
            kinds = _kinds(models, recipe)
            stages += [control, *(dataclasses.replace(control, closed=k, needs=(control.key,)) for k in kinds)]
        return stages

    @property
    def estimate(self) -> float:
        plan = self.models.plan
        return 0.1 + 1.5 * plan.context.updates / plan.training.updates  # two stacks, and eager attention

    def depends(self) -> list[Any]:
        plan, analysis = self.models.plan.context, self.models.plan.analysis
        scored = [analysis.sentences, plan.sentences, plan.bleu_sentences]
        more = [] if self.closed else [_kinds(self.models, self.recipe)]  # for the translation
        return [_VERSION, heads.ENCODER_CONTEXT.version, self._trained_key(self.closed), scored, *more]

    @property
    def how(self) -> str:
        return f"{self.closed} closed" if self.closed else "all open"

    # -- measurement --------------------------------------------------------------------------------------------------

    def make(self) -> pd.DataFrame:
        updates = self.models.plan.context.updates
        retrained = self._retrained(self.closed)
        if self.closed:
            before, closing = self._retrained(_OPEN), heads.closings_of(retrained, self.closed)[0]
        else:
            before, closing = self.models.load(Subject(recipe=self.recipe)), heads.Closing.none()
        frames = [
            heads.context_rows(
                _against(_losses(self, before, []), _losses(self, retrained, [closing])), [closing], updates
            )
        ]
        if self._translates:
            few = self._few
            scores = _against(heads.context_bleu(before, few, []), heads.context_bleu(retrained, few, [closing]))
            frames.append(heads.context_rows(scores, [closing], updates))
            if not self.closed:
                frames += [self._translated(before, kind) for kind in _kinds(self.models, self.recipe)]
        found = pd.concat(frames, ignore_index=True)
        _tell(self.recipe, found)
        return found

    def _translated(self, model: Model, kind: str) -> pd.DataFrame:
        """BLEU of the converged model with one kind of attention closed in all blocks, and in the upper half."""
        every = heads.closings_of(model, kind)
        half = every[0].number // 2
        wanted = [one for one in every if one.which == "all" or (one.which, one.number) == ("upper", half)]
        return heads.context_rows(heads.context_bleu(model, self._few, wanted), wanted)

    @property
    def _translates(self) -> bool:
        return self.models.objective(self.recipe).needs_translation and self.models.plan.context.bleu_sentences > 0

    @property
    def _few(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.context.bleu_sentences)

    # -- training -----------------------------------------------------------------------------------------------------

    def _trained_key(self, closed: str) -> str:
        """Key of the weights; the control has a single key for all kinds of attention."""
        plan = self.models.plan.context
        return digest([_VERSION, self.models.train_key(self.recipe), closed, plan.updates, plan.learning_rate])

    def _retrained(self, closed: str) -> Model:
        """The model after further training (continued if it was interrupted), as read from its folder."""
        models, plan = self.models, self.models.plan.context
        folder = self.cache.path("retraining", self._trained_key(closed))
        model = models.load(Subject(recipe=self.recipe))
        blocks = heads.closings_of(model, closed)[0].blocks if closed else frozenset()
        # The control also uses infoflow's attention, so that its dropout draws the same numbers.
        with heads.closed_attention(model, sorted(blocks)):
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


def _losses(stage: Retrain, model: Model, closings: Sequence[heads.Closing]) -> heads.VariantScores:
    """Losses with these kinds of attention closed, on the analysed sentences, which are the same for all models."""
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
    return heads.context_scores(reader, closings, models.plan.context.sentences or None, options)


def _against(before: heads.VariantScores, after: heads.VariantScores) -> heads.VariantScores:
    """Combine the open scores of one model with the scores of another model on the same sentences.

    `before` has no closed scores. The last losses are those of token frequencies, which are equal in both.
    """
    sums_VKS = np.concatenate([before.sums_VKS[:1], after.sums_VKS[1:2], before.sums_VKS[1:]])
    return dataclasses.replace(after, sums_VKS=sums_VKS)


def _tell(recipe: Recipe, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    how = (
        f"with {first['kind']} closed, less than with all open" if first["kind"] else "with all open, less than before"
    )
    current_display().note(f"{recipe.name} trained on {how}: {first['value']:+.3g} nats per token.")
