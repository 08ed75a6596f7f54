"""The implicit alignment: an encoder is trained for another model's decoder."""

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from transformers import EncoderDecoderModel, PreTrainedModel

from infoflow.corpus import Corpus
from infoflow.foundation import (
    Count,
    CountOrNone,
    LearningRate,
    Limits,
    Seed,
    UserError,
    as_written,
    check_settings,
    hash64,
)
from infoflow.models import Model, load_model
from infoflow.objectives import Translation, Vocabulary
from infoflow.training import TrainConfig, TrainingData, train

from ._encoders import encoder_of

PARTS = ("embeddings", "encoder", "decoder")
"""Parts that can be frozen: the encoder's tables (tokens, positions, segments), its other parts, the whole decoder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplicitConfig:
    """The settings of the published recipe; the loop is that of `infoflow.training`."""

    learning_rate: LearningRate = 3e-5
    epsilon: Annotated[float, Limits(above=0, at_most=1)] = 1e-6
    batch_sentences: Count = 32
    epochs: Count = 1
    max_length: Count = 128  # tokens on either side; longer sentences are truncated
    freeze: tuple[str, ...] = ()  # any of "embeddings", "encoder", "decoder": see `PARTS`
    reinitialise_decoder: bool = False  # the decoder starts from random weights
    seed: Seed = 0  # seeds the order of sentences, dropout, and a reinitialised decoder
    save_every: CountOrNone = 500  # updates between checkpoints, from which an interrupted run resumes

    def __post_init__(self) -> None:
        check_settings(self)
        if unknown := [part for part in self.freeze if part not in PARTS]:
            raise UserError(f"freeze takes {', '.join(PARTS)}. Got {as_written(unknown[0])}.")
        if set(self.freeze) == set(PARTS):
            raise UserError("Everything is frozen: there is nothing to train. Leave a part out of freeze.")
        if self.reinitialise_decoder and "decoder" in self.freeze:
            raise UserError("A decoder of random weights must be trained. Leave it out of freeze.")


def align_implicit(
    source: Model, target: Model, corpus: Corpus, out: Path | str, config: ImplicitConfig | None = None
) -> Model:
    """Put the source's encoder under the target's decoder and fine-tune both on translation.

    AdamW at a constant rate, on the token mean of the cross-entropy. Another call with the same arguments resumes, or
    returns the existing result (see `infoflow.training.train`).

    Args:
        source: A model with an encoder as wide as the target's; it is not changed.
        target: A translation model (`EncoderDecoderModel`) with its target tokenizer; it is not changed.
        corpus: Sentences with translations.
        out: Folder; the model is in `model`, a plain checkpoint.
        config: The recipe's settings.

    Returns:
        The translation model with the fine-tuned encoder and the source's tokenizer.

    Raises:
        UserError: The models do not match, the corpus has no translations, or `out` holds another run.

    Source: [@vazquez2021].
    """
    config = config or ImplicitConfig()
    joined = transplanted(source, target)
    module = joined.module
    if config.reinitialise_decoder:
        module.decoder = _fresh(module.decoder, config.seed)
    _freeze(joined, config.freeze)
    data = _data(joined, corpus, config.max_length)
    train(Translation(), _training(config, len(corpus), source.device), data, module, out)
    return _with_target_tokenizer(load_model(Path(out) / "model", device=str(source.device)), target)


def transplanted(source: Model, target: Model) -> Model:
    """The target with the source's encoder instead of its own, without training.

    Raises:
        UserError: The target is not an `EncoderDecoderModel`, or its encoder has another width.
    """
    if not isinstance(target.module, EncoderDecoderModel):
        raise UserError(
            f"The implicit alignment needs a translation model of the class EncoderDecoderModel. {target.name} is a "
            f"{type(target.module).__name__}."
        )
    widths = [model.anatomy.stack("encoder").width for model in (source, target)]
    encoder = copy.deepcopy(encoder_of(source))
    if widths[0] != widths[1]:
        raise UserError(
            f"The decoder of {target.name} reads states {widths[1]} wide. {source.name} has an encoder {widths[0]} "
            "wide: align it explicitly (align_explicit), which maps one width to the other."
        )
    module: Any = copy.deepcopy(target.module)
    module.encoder = encoder
    module.config.encoder = encoder.config
    model = load_model(module, tokenizer=source.require_tokenizer())
    return _with_target_tokenizer(model, target)


def _training(config: ImplicitConfig, sentences: int, device: torch.device) -> TrainConfig:
    return TrainConfig(
        updates=config.epochs * -(-sentences // config.batch_sentences),
        batch_sentences=config.batch_sentences,
        batch_tokens=config.batch_sentences * config.max_length,  # never reached
        learning_rate=config.learning_rate,
        warmup=0,
        schedule="constant",
        betas=(0.9, 0.999),
        epsilon=config.epsilon,
        weight_decay=0.01,
        clip=0.0,
        seed=config.seed,
        device=device.type,
        save_every=config.save_every,
        keep_last=1,
    )


def _data(model: Model, corpus: Corpus, max_length: int) -> TrainingData:
    tokenizer = model.require_tokenizer()
    target = model.target_tokenizer or tokenizer
    limits = [min(max_length, longest or max_length) for longest in (model.max_tokens, model.max_target_tokens)]
    return TrainingData(
        source=corpus.encode(tokenizer, max_length=limits[0]),
        vocabulary=Vocabulary.from_tokenizer(tokenizer),
        target=corpus.encode(target, side="translation", max_length=limits[1]),
        target_vocabulary=Vocabulary.from_tokenizer(target),
        tokenizer=tokenizer,
        target_tokenizer=target,
    )


def _fresh(decoder: PreTrainedModel, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash64("alignment-decoder", seed))
        return type(decoder)(decoder.config).to(decoder.device)


def _freeze(model: Model, parts: tuple[str, ...]) -> None:
    groups = model.anatomy.parameter_groups
    tables = {group.slice.parameter for group in groups if group.component in ("embeddings", "positions", "segments")}
    for name, parameter in model.module.named_parameters():
        stack = name.partition(".")[0]
        part = "embeddings" if stack == "encoder" and name in tables else stack
        parameter.requires_grad_(part not in parts)


def _with_target_tokenizer(model: Model, target: Model) -> Model:
    return dataclasses.replace(model, target_tokenizer=target.target_tokenizer or target.require_tokenizer())
