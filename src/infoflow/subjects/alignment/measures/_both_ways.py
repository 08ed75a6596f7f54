"""The two alignments: an encoder is trained to give another encoder's vectors, or to serve another model's decoder."""

import copy
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from infoflow._transformers import EncoderDecoderModel, PreTrainedModel
from infoflow.corpus import Corpus
from infoflow.flow import first_then_others
from infoflow.foundation import (
    Count,
    CountOrNone,
    LearningRate,
    Limits,
    Seed,
    UserError,
    Weight,
    as_written,
    atomic_write,
    check_settings,
    current_display,
    digest,
    hash64,
    stream,
)
from infoflow.models import Model, load_model
from infoflow.objectives import Translation, Vocabulary
from infoflow.training import TrainConfig, TrainingData, train

from ._encoders import AlignedEncoder, Merge, encode, encoder_of, frozen, is_saved, random_map, read_facts
from ._links import AbstractWordLinks, IdentityLinks, LinkedBatch, LinkedSentences, word_vectors

WarmUp = Annotated[float, Limits(at_least=0, at_most=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplicitConfig:
    """Settings of the published recipe."""

    regulariser: Weight = 0.25  # μ: weight of the distance to the initial model
    attraction: Weight = 1.0  # weight of the distance between linked words; 0: only the regulariser (a control)
    merge: Merge = "last"  # a word's vector is that of its last subword, or the mean over its subwords
    learning_rate: LearningRate = 5e-5
    warmup: WarmUp = 0.1  # share of one epoch's sentences over which the rate rises; counted in sentences, not steps
    batch_sentences: Count = 8
    epochs: Count = 1
    seed: Seed = 0  # seeds the map's initial weights, the order of sentences, and dropout
    max_length: Count = 64  # maximum number of tokens; longer sentences are truncated
    save_every: CountOrNone = 0  # updates between checkpoints; 0: none, so an interrupted run restarts

    def __post_init__(self) -> None:
        check_settings(self)
        if self.regulariser == self.attraction == 0:
            raise UserError("regulariser and attraction are both 0: there is nothing to learn.")


def align_explicit(
    source: Model,
    target: Model,
    corpus: Corpus,
    out: Path | str,
    *,
    links: AbstractWordLinks | None = None,
    translated: bool = False,
    config: ExplicitConfig | None = None,
) -> AlignedEncoder:
    r"""Train a copy of the source encoder, with a linear map, to reproduce the target encoder's word vectors.

    $$ \mathcal L = \mathrm{MSE}(f(x)_i, g(y)_j) + \mu \, \mathrm{MSE}(f(x), f_0(x)) $$

    | symbol  | here                                                                                     |
    |---------|------------------------------------------------------------------------------------------|
    | $f$     | the source encoder, then a linear layer to the target's width; trained jointly           |
    | $f_0$   | a frozen copy of f as it was at the start, including its random map                      |
    | $g$     | the target model's encoder, frozen                                                       |
    | $(i,j)$ | linked words, one to one; the second term runs over all tokens                           |

    Means are over vectors and their dimensions. Adam with β = (.9, .98) and ε = 1e-9; the rate rises linearly and then
    stays constant. The weights depend only on the arguments and the seed. Another call with the same arguments returns
    the result in `out`, or resumes from the newest checkpoint there, with the same weights.

    Args:
        source: A model with an encoder; it is not changed.
        target: A model with the encoder whose space is the target.
        corpus: Training sentences.
        out: Output folder: a checkpoint of the encoder, and the map in `projection.safetensors`.
        links: Linked words; default: word i is linked to word i, for two models of one language.
        translated: Whether the target model reads the corpus's translations.
        config: The recipe's settings.

    Raises:
        UserError: A model has no encoder, links and sentences do not match, or `out` holds another alignment.

    Source: [@cao2020]; the linear map, μ and the word's last subword as in [@vazquez2021].
    """
    config = config or ExplicitConfig()
    links = links or IdentityLinks()
    sentences = LinkedSentences(source, target, corpus, links, translated=translated, max_length=config.max_length)
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name != "save_every"}
    key = digest([source.digest, target.digest, corpus.digest, links.key, translated, settings])
    run = _Alignment(source, target, sentences, config, Path(out), key)
    return first_then_others(run.result)


def initial_encoder(source: Model, target: Model, config: ExplicitConfig) -> AlignedEncoder:
    """f_0: the unchanged source encoder, with the initial map."""
    encoder = frozen(encoder_of(source))
    width, target_width = (model.anatomy.stack("encoder").width for model in (source, target))
    projection = random_map(width, target_width, hash64("alignment-map", config.seed))
    return AlignedEncoder(encoder, projection.to(encoder.device), config.merge).eval().requires_grad_(False)


class _Alignment:
    """One run: manages the sentences and the checkpoint."""

    def __init__(
        self, source: Model, target: Model, sentences: LinkedSentences, config: ExplicitConfig, out: Path, key: str
    ) -> None:
        self.sentences, self.config, self.out, self.key = sentences, config, out, key
        self.device, self.tokenizer = source.device, source.tokenizer
        self.initial = initial_encoder(source, target, config)
        self.target = frozen(encoder_of(target)).to(self.device)
        self.aligned = copy.deepcopy(self.initial).requires_grad_(True).train()
        self.optimizer = torch.optim.Adam(
            self.aligned.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.update = 0  # number of updates made
        self._order: np.ndarray | None = None  # order of the sentences in this epoch

    def result(self) -> AlignedEncoder:
        """The result in the folder if there is one, or else the result of training."""
        if is_saved(self.out):
            _check_key(read_facts(self.out)["key"], self.key, self.out)
            return AlignedEncoder.load(self.out, device=str(self.device))
        with torch.random.fork_rng():
            aligned = self.train()
        facts = {"key": self.key, "links": self.sentences.links.name, "config": dataclasses.asdict(self.config)}
        aligned.save(self.out, self.tokenizer, facts)
        _checkpoint(self.out).unlink(missing_ok=True)
        return aligned

    def train(self) -> AlignedEncoder:
        """All epochs, from the checkpoint or from the start."""
        self._resume()
        label = f"align to {type(self.target).__name__}"
        total = self.config.epochs * self._per_epoch
        with current_display().progress(label, (total - self.update) * self.config.batch_sentences, "sentences") as bar:
            while self.update < total:
                loss = self._step()
                self.update += 1
                bar.advance(self.config.batch_sentences, loss=f"{loss:.4f}")
                if self.config.save_every and self.update % self.config.save_every == 0:
                    self._save()
        return self.aligned.eval().requires_grad_(False)

    @property
    def _per_epoch(self) -> int:
        return math.ceil(len(self.sentences) / self.config.batch_sentences)

    def _step(self) -> float:
        epoch, batch = divmod(self.update, self._per_epoch)
        if batch == 0 or self._order is None:
            self._order = stream("alignment-order", self.config.seed, epoch).permutation(len(self.sentences))
        rows = self._order[batch * self.config.batch_sentences : (batch + 1) * self.config.batch_sentences]
        # Dropout depends on the seed and the update, so that a resumed run repeats it.
        torch.manual_seed(hash64("alignment-dropout", self.config.seed, self.update))
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self.sentences.batch(rows))
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.step()
        if not math.isfinite(value := float(loss.detach())):
            raise UserError(
                f"The alignment's loss is not finite at update {self.update + 1}. "
                f"Lower learning_rate (now {self.config.learning_rate})."
            )
        return value

    def _loss(self, batch: LinkedBatch) -> Tensor:
        source, target, config = batch.source, batch.target, self.config
        ids, real, words = (tensor.to(self.device) for tensor in (source.input_ids, source.real, source.words))
        mapped = self.aligned(ids, real)
        with torch.no_grad():
            before = self.initial(ids, real)
        loss = config.regulariser * F.mse_loss(mapped[real], before[real])
        if config.attraction == 0 or len(batch.source_words) == 0:
            return loss
        with torch.no_grad():
            states = encode(self.target, target.input_ids.to(self.device), target.real.to(self.device))
            wanted = word_vectors(
                states, target.words.to(self.device), batch.target_words.to(self.device), config.merge
            )
        given = word_vectors(mapped, words, batch.source_words.to(self.device), config.merge)
        return loss + config.attraction * F.mse_loss(given, wanted)

    def _learning_rate(self) -> float:
        seen = (self.update + 1) * self.config.batch_sentences
        rise = self.config.warmup * len(self.sentences)
        return self.config.learning_rate * min(1.0, seen / rise if rise else 1.0)

    def _save(self) -> None:
        state: dict[str, Any] = {
            "key": self.key,
            "update": self.update,
            "aligned": self.aligned.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        with atomic_write(_checkpoint(self.out)) as temporary:
            torch.save(state, temporary)

    def _resume(self) -> None:
        path = _checkpoint(self.out)
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        _check_key(state["key"], self.key, self.out)
        self.aligned.load_state_dict(state["aligned"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.update = state["update"]
        current_display().note(f"Alignment: continuing after update {self.update} from {path}")


def _checkpoint(out: Path | str) -> Path:
    return Path(out).parent / f"{Path(out).name}.checkpoint.pt"


def _check_key(saved: str, wanted: str, folder: Path | str) -> None:
    if saved != wanted:
        raise UserError(
            f"{folder} holds an alignment of other models, sentences, links or settings. Give another output folder."
        )


# The implicit alignment: an encoder is trained for another model's decoder.


PARTS = ("embeddings", "encoder", "decoder")
"""Parts that can be frozen: the encoder's tables (tokens, positions, segments), its other parts, the whole decoder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplicitConfig:
    """The settings of the published recipe; the loop is that of `infoflow.training`."""

    learning_rate: LearningRate = 3e-5
    epsilon: Annotated[float, Limits(above=0, at_most=1)] = 1e-6
    batch_sentences: Count = 32
    epochs: Count = 1
    max_length: Count = 128  # maximum number of tokens on either side; longer sentences are truncated
    freeze: tuple[str, ...] = ()  # any of "embeddings", "encoder", "decoder": see `PARTS`
    reinitialise_decoder: bool = False  # whether the decoder starts from random weights
    seed: Seed = 0  # seeds the order of sentences, dropout, and a reinitialised decoder
    save_every: CountOrNone = 500  # updates between checkpoints, from which an interrupted run resumes

    def __post_init__(self) -> None:
        check_settings(self)
        if unknown := [part for part in self.freeze if part not in PARTS]:
            raise UserError(f"freeze takes {', '.join(PARTS)}. Got {as_written(unknown[0])}.")
        if set(self.freeze) == set(PARTS):
            raise UserError("Everything is frozen: there is nothing to train. Leave a part out of freeze.")
        if self.reinitialise_decoder and "decoder" in self.freeze:
            raise UserError("A decoder with random weights must be trained. Leave it out of freeze.")


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
    """The target with the source's encoder instead of its own, without training."""
    if not isinstance(target.module, EncoderDecoderModel):
        raise UserError(
            f"The implicit alignment needs a translation model of the class EncoderDecoderModel. {target.name} is a "
            f"{type(target.module).__name__}."
        )
    widths = [model.anatomy.stack("encoder").width for model in (source, target)]
    encoder = copy.deepcopy(encoder_of(source))
    if widths[0] != widths[1]:
        raise UserError(
            f"The decoder of {target.name} reads states of width {widths[1]}. {source.name} has an encoder of width "
            f"{widths[0]}: align it explicitly (align_explicit), which maps one width to the other."
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
