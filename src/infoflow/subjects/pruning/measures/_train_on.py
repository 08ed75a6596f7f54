"""Train a pruned model further, after its heads were removed from the weights."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.objectives import AbstractObjective, CausalLM, MaskedLM, Translation, Vocabulary
from infoflow.training import TrainConfig, TrainingData, train

_BY_TASK: dict[str, type[AbstractObjective]] = {"causal-lm": CausalLM, "masked-lm": MaskedLM, "seq2seq": Translation}
_POSITIONS = 512


def training_objective(model: Model, corpus: Corpus, trained: AbstractObjective | None) -> AbstractObjective:
    """The objective for further training: the one that the model was trained with, or the plain one for its task."""
    if model.task not in _BY_TASK:
        raise UserError(f"--recover trains models that predict tokens. {model.name} is an encoder without such a head.")
    whole = trained is not None and not trained.exports_a_part and trained.reads == "sentence"
    objective = trained if trained is not None and whole else _BY_TASK[model.task]()
    if objective.needs_translation and "translation" not in corpus.columns:
        raise UserError(f"--recover trains {model.name} to translate, and {corpus.name} has no translations.")
    return objective


def trained_on(
    model: Model, corpus: Corpus, objective: AbstractObjective, updates: int, rate: float, seed: int
) -> Model:
    """The pruned model after further updates; its module changes.

    Args:
        model: From `prune`: its heads are gone from the weights.
        corpus: Training sentences.
        objective: See `training_objective`.
        updates: Optimiser steps; the rate rises for 8% of them and then falls linearly to 0.
        rate: The highest learning rate.
        seed: Seed of data order, noise and dropout.
    """
    own: Any = model.require_tokenizer()
    if own.pad_token_id is None and own.eos_token_id is not None:
        own.pad_token = own.eos_token  # padding is on the right, where no counted position sees it
    limits = [limit for limit in (model.max_tokens, model.max_target_tokens) if limit is not None]
    longest = min([_POSITIONS, *limits])
    options: dict[str, Any] = {}
    if objective.needs_translation:
        target = model.target_tokenizer or own
        options["target"] = corpus.encode(target, side="translation", max_length=longest)
        options |= {"target_vocabulary": Vocabulary.from_tokenizer(target), "target_tokenizer": target}
    source = corpus.encode(own, max_length=longest - objective.added_tokens(Vocabulary.from_tokenizer(own)))
    data = TrainingData(source=source, vocabulary=Vocabulary.from_tokenizer(own), tokenizer=own, **options)
    config = TrainConfig(updates=updates, learning_rate=rate, seed=seed, device=model.device.type, save_every=0)
    device = model.device
    with TemporaryDirectory() as folder:
        train(objective, config, data, model.module.train(), Path(folder))
    model.module.to(device).eval()
    return replace(model)  # a new object, without values cached from the earlier weights
