"""Stages before tuning (further pretraining on a domain, loss on its words, leakage of test texts); `train_further`."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus
from infoflow.flow import is_first
from infoflow.foundation import (
    NUM_BLOCKS,
    block_of,
    block_sums,
    current_display,
    provenance,
    replicate_weights,
    running_words,
)
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.report import check_output
from infoflow.results import RunFolder, Subject, estimate
from infoflow.studies._data import StudyData, Tokenizers, at_most, prepare
from infoflow.studies._parts import without
from infoflow.studies._plan import StudyPlan
from infoflow.studies._run import wall_clock
from infoflow.studies._scores import content_ids_of, rows_by_block, unigram_losses
from infoflow.studies._study import TrainedModel, only_one
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractModelStage, AbstractStage, AbstractTableStage, OfModels, OfRecipe
from infoflow.studies.stages._train import Train, training_estimate
from infoflow.subjects.probing.settings import ProbingPlan
from infoflow.training import TrainingData, train, usable_device

from ..measures import DOMAIN_LOSS, TASK_LEAKAGE, Parent, leakage, load_parent
from ..settings import TunePlan
from ._specialised import Specialised, specialised
from ._study_tasks import AS_IS, SCRATCH, StudyDomain, StudyTasks, learned_tokens

TEXTS = ("domain", "general")
_VERSION = 1  # increase when the same models are scored differently


@dataclass(frozen=True, kw_only=True, eq=False)
class Specialise(AbstractModelStage):
    """One phase of further pretraining of one model."""

    kind = "specialise"
    named = "specialise {self.model.name}"
    stored = "specialised"
    model: Specialised

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Specialise]":
        """One stage for each phase of each domain model, after the preceding phase."""
        if not models.plan.domain.on:
            return []
        return [cls.of(one) for recipe in models.own(StudyDomain).recipes for one in specialised(models, recipe)]

    @classmethod
    def of(cls, model: Specialised) -> "Specialise":
        """The stage of a model, after that of the model from which it starts."""
        if model.strategy == SCRATCH:
            return cls(model=model)
        earlier = cls(model=model.before) if model.before else Train(models=model.models, recipe=model.recipe)
        return cls(model=model, needs=(earlier.key,))

    @property
    def estimate(self) -> float:
        plan = self.model.models.plan
        return training_estimate(self.model.recipe) * self.model.config.updates / plan.training.updates

    def depends(self) -> list[Any]:
        """What the stage depends on, including the name, since two recipes may have the same weights."""
        return ["specialise", self.model.key, self.model.name]

    def make(self) -> dict[str, Any]:
        return self.model.train()


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureDomain(OfRecipe, AbstractTableStage):
    """The stage that measures a model's pretraining loss per word on domain text and general text, before tuning.

    The model is the general one, the continued one, or the one from scratch.
    """

    kind = "predict"
    named = "predict words with {self.measured}"
    stored = "domain-loss"
    makes = (DOMAIN_LOSS,)
    guess = 0.02
    model: Specialised | None  # None for the general model

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureDomain]":
        """One stage for the general model of each domain recipe, and one for each of its specialised models."""
        if not models.plan.domain.corpus:
            return []
        as_is = [
            cls(models=models, recipe=recipe, model=None, needs=(Train(models=models, recipe=recipe).key,))
            for recipe in models.own(StudyDomain).recipes
        ]
        special = [stage for stage in before if isinstance(stage, Specialise) and stage.model.task is None]
        return as_is + [
            cls(models=models, recipe=stage.model.recipe, model=stage.model, needs=(stage.key,)) for stage in special
        ]

    @property
    def strategy(self) -> str:
        return self.model.strategy if self.model else AS_IS

    @property
    def measured(self) -> str:
        return self.model.name if self.model else self.recipe.name

    def depends(self) -> list[Any]:
        weights = self.model.key if self.model else self.models.train_key(self.recipe)
        texts = [self.models.own(StudyDomain).key(name) for name in self.models.plan.domain.strategies]
        sizes = [self.models.plan.domain.loss_sentences, self.models.plan.analysis.sentences]
        own = [self.models.data_key, weights, self.recipe.name, self.strategy]
        return [_VERSION, DOMAIN_LOSS.version, own, texts, sizes]

    def make(self) -> pd.DataFrame:
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
        losses = ", ".join(f"{row['value']:.2f} of {row['text']} text" for row in rows)
        current_display().note(f"{self.measured}: nats per word {losses}.")
        return pd.DataFrame(rows)

    def _texts(self) -> dict[str, Corpus]:
        """Domain and general sentences, the same for every model: test sentences that no training part contains."""
        domain: StudyData = self.models.own(StudyDomain).data(self.models.plan.domain.strategies[0])
        general, most = self.models.data, self.models.plan.domain.loss_sentences
        parts = (without(domain.analysed, [general.train]), without(general.analysed, [domain.train]))
        return {name: at_most(part, most) for name, part in zip(TEXTS, parts, strict=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class CountLeakage(OfModels, AbstractTableStage):
    """Counts the test texts of a task that occur in the general corpus, the domain's, or its own training part."""

    kind = "count"
    named = "count leakage of {self.entry.name}"
    stored = "leakage"
    makes = (TASK_LEAKAGE,)
    guess = 0.01
    runs_models = False
    entry: TunePlan

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CountLeakage]":
        return [cls(models=models, entry=entry) for entry in models.plan.tune]

    def depends(self) -> list[Any]:
        models = self.models
        domain = (
            [models.own(StudyDomain).key(name) for name in models.plan.domain.strategies] if self._has_domain else []
        )
        own = [models.own(StudyTasks).digest(self.entry), self.entry.name]
        return ["leakage", TASK_LEAKAGE.version, models.data_key, own, domain]

    @property
    def _has_domain(self) -> bool:
        return bool(self.models.plan.domain.corpus and self.models.own(StudyDomain).recipes)

    def make(self) -> pd.DataFrame:
        models = self.models
        others = {"pretraining": models.data.train}
        if self._has_domain:
            others["domain"] = models.own(StudyDomain).data(models.plan.domain.strategies[0]).train
        found = leakage(models.own(StudyTasks).data(self.entry), others)
        for row in found[found["same"] > 0].to_dict("records"):
            current_display().note(
                f"{row['task']}: {row['same']:,} of {row['texts']:,} test texts also occur in {row['within']} text."
            )
        return found


def loss_per_word(
    model: Model, objective: AbstractObjective, data: TrainingData, corpus: Corpus, training: TrainingData
) -> dict[str, Any]:
    r"""The columns of one row of DOMAIN_LOSS: nats per word of `corpus`, with the unigram baseline of `training`.

    $$ \frac{\sum_i \ell_i}{\#\text{predicted}} \cdot \frac{\#\text{tokens}}{\#\text{words}} $$

    The first factor is the loss per predicted token (weighted sum over terms), with fixed noise for each sentence; a
    masked LM predicts only a share of the tokens, which represents all. Tokens are those of the predicted text (for
    translation, the translation) without special tokens; words are those of running text. A vocabulary with longer
    tokens has fewer but harder tokens per word, which the loss per word takes into account.
    """
    objective = objective.for_evaluation()
    blocks = block_of(content_ids_of(data.source, corpus))
    unigram, terms = unigram_losses(objective, training), list(objective.term_weights)
    sums, guesses, counts = (np.zeros((len(terms), NUM_BLOCKS)) for _ in range(3))
    with torch.inference_mode():
        for rows in rows_by_block(blocks, data.source.lengths):
            batch = data.batch(objective, rows, ("evaluation-noise", 0), 0).to(model.device)
            losses, guessed = objective.loss(model.module, batch, batch.noise), objective.guesses(batch, unigram)
            for index, term in enumerate(terms):
                sums[index, blocks[rows[0]]] += float(losses[term].total)
                guesses[index, blocks[rows[0]]] += guessed[term]
                counts[index, blocks[rows[0]]] += losses[term].count
    tokens, words = _lengths(objective, data, corpus)
    weights = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    scale, shares = (weights @ tokens) / (weights @ words), [objective.term_weights[term] for term in terms]
    found, base = (
        sum(share * (weights @ own) / (weights @ num) for share, own, num in zip(shares, part, counts, strict=True))
        * scale
        for part in (sums, guesses)
    )
    return estimate(float(found[0]), found[1:], float(base[0]), int(words.sum()))


def _lengths(objective: AbstractObjective, data: TrainingData, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Number of tokens and of words of the predicted text, per block."""
    side = "translation" if objective.needs_translation else "text"
    vocabulary = (data.target_vocabulary if objective.needs_translation else None) or data.vocabulary
    rows = data.target if objective.needs_translation else data.source
    assert rows is not None
    of_rows, of_texts = block_of(content_ids_of(data.source, corpus)), block_of(corpus.content_ids)
    tokens = np.array([(~vocabulary.is_special[rows.row(row)]).sum() for row in range(len(of_rows))])
    words = np.array([len(running_words(text)) for text in corpus.column(side)])
    return block_sums(tokens, of_rows), block_sums(words, of_texts)


# `train_further`: continue training any compatible model with any objective, on another corpus.

_KIND = "train-further"
_COPIES = 10  # passes over the text, each with different sentence pairs, as for a study's models


def train_further(
    objective: str,
    start: str | Path,
    plan: StudyPlan | Path | str = "quick",
    seed: int = 0,
    out: Path | str | None = None,
    new_tokens: int = 0,
) -> TrainedModel:
    """Continue training a model with an objective of the plan, on the plan's corpus, in the folder `out`.

    The model (of a study, or any Hugging Face folder or name) keeps its tokenizer; the optimiser restarts with the
    plan's schedule and warm-up. For two phases (first the domain, then the unlabelled texts of a task), call it twice.
    Repeat an interrupted call to continue it. Up to `new_tokens` tokens are learned on the corpus and added
    (`extend_vocabulary`); existing tokens keep their ids.
    """
    plan = _alone(plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan), objective, seed)
    chosen = plan.objective(objective)
    run = RunFolder(out or Path("runs") / "further" / objective)
    if not run.path.exists():
        usable_device(plan.training.device)
    parent = load_parent(start, chosen, plan.model.positions)
    with only_one(run):
        check_output(run, _KIND)
        if is_first() and not run.read():
            facts = {"start": Path(str(start)).name, "parent": parent.digest, "new_tokens": new_tokens}
            run.update(kind=_KIND, title=plan.title, plan=plan.to_json(), provenance=provenance(), **facts)
        with wall_clock(run, save=is_first()):
            return _trained(chosen, parent, plan, seed, run, new_tokens)


def _trained(
    objective: AbstractObjective, parent: Parent, plan: StudyPlan, seed: int, run: RunFolder, new_tokens: int
) -> TrainedModel:
    extended = [parent]

    def tokenizers(text: Corpus) -> Tokenizers:
        if new_tokens:
            extended.append(parent.extended(learned_tokens(parent.tokenizer, text, new_tokens), objective))
        return extended[-1].tokenizer, extended[-1].target_tokenizer

    data = prepare(plan, run.path / "work", tokenizers)
    model, reads = extended[-1].module, plan.reads(objective)
    result = train(
        objective,
        dataclasses.replace(plan.training, seed=seed),
        data.arranged(data.train, parent.positions, objective, reads, _COPIES),
        model,
        run.path,
        validation=data.arranged(data.validation, parent.positions, objective, reads),
        parent=parent.digest,
    )
    losses = result.validation_losses
    facts: dict[str, Any] = {name: getattr(result, name) for name in ("updates", "source_tokens", "seconds")}
    facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    facts["validation_loss"] = objective.weighted(losses) if losses else math.nan
    return TrainedModel(folder=result.model, facts=facts)


def _alone(plan: StudyPlan, objective: str, seed: int) -> StudyPlan:
    """The plan for this objective and seed alone, without settings that need other models."""
    others = {"probing": ProbingPlan(), "architectures": ("bert",)}
    return plan.for_models(objectives=(objective,), seeds=(seed,), **others)
