"""Interface of pretraining objectives: the trained model, corruption (also as an ablation) and scores."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability

from . import _batch
from ._batch import collate

Baseline = Literal["unigram", "source copied", "most frequent", "chance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A score on held-out text, its baseline, and the rule that decides whether a model learned its task.

    The rule uses the end of the score's interval that is closer to the baseline, so that a lucky estimate does not
    pass. If lower is better, the upper end must be below `share` times the baseline; if higher is better, the lower end
    must be more than `gain` above the baseline.
    """

    name: str  # name in the column `metric` of the table `task_scores`
    baseline: Baseline
    """"unigram": frequencies of the training text; "source copied": the source as its own translation or, in text
    without spaces, one sentence as the translation of all if that is better; "most frequent": the more frequent
    answer; "chance": a half."""
    better: Literal["lower", "higher"]
    share: float | None = None  # of the baseline; used if lower is better
    gain: float | None = None  # over the baseline, in the score's unit; used if higher is better

    def __post_init__(self) -> None:
        assert (self.share is None, self.gain is None) == (self.better == "higher", self.better == "lower")

    def limit(self, baseline: float) -> float:
        """The value beyond which the whole interval must lie."""
        return baseline + self.gain if self.gain is not None else baseline * (self.share or 0.0)

    def needed(self, baseline: float) -> str:
        """The rule in words, such as `needed below 4.5`."""
        return f"needed {'below' if self.better == 'lower' else 'above'} {self.limit(baseline):.3g}"

    @property
    def label(self) -> str:
        return "BLEU" if self.name == "bleu" else self.name

    def learned(self, low: float, high: float, baseline: float) -> bool:
        """Whether a score with the interval from `low` to `high` shows that the task was learned."""
        return high < self.limit(baseline) if self.better == "lower" else low > self.limit(baseline)


# 10 % below the loss of token frequencies shows that context is used, which takes more than a few updates.
LOSS = Metric(name="loss", baseline="unigram", better="lower", share=0.9)
# Translations below about 10 points are usually considered useless, and a decoder that ignores its source stays below.
BLEU = Metric(name="bleu", baseline="source copied", better="higher", gain=10.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answers:
    """One answer for each question in a batch."""

    scores: np.ndarray  # float (question,): positive means yes
    truth: np.ndarray  # int64 (question,): 1 yes, 0 no
    example: np.ndarray  # int64 (question,): row of the batch
    kind: Literal["accuracy", "AUC"]


def accuracy(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average((scores > 0) == (truth > 0), weights=weights))


def area_under_curve(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    r"""Probability that a yes scores higher than a no, where ties count half; NaN if only one of the two occurs.

    $$ \mathrm{AUC} = \frac{\sum_{i: y_i = 1} w_i \left(W^-_{<s_i} + \tfrac12 W^-_{=s_i}\right)}{W^+ W^-} $$
    """
    _, level = np.unique(scores, return_inverse=True)
    yes = np.bincount(level, weights * (truth > 0))
    no = np.bincount(level, weights * (truth <= 0))
    below = np.cumsum(no) - no
    total = yes.sum() * no.sum()
    return float((yes * (below + no / 2)).sum() / total) if total else float("nan")


Reads = Literal["sentence", "window", "pair"]
"""Unit of an example: a sentence, consecutive sentences of a document, or two segments from documents."""

Writes = Literal["translation", "text", "part"]
"""Target of a decoder with an encoder: the translation, the original text, or the removed part of the text."""

Family = Literal["predict next", "fill in", "translate", "discriminate", "reconstruct", "static"]
"""Task of an objective.

In this order, models predict the next token, hidden tokens, a translation, which of two answers is true, or the text
before corruption; or they learn one vector per word.
"""


class AbstractObjective(ABC):
    """A pretraining objective.

    `corrupt` depends only on (example, generator, vocabulary): the training loop passes a generator keyed by (seed,
    epoch, sentence), so noise does not depend on the order of calls. `loss` returns a sum and a count per term, because
    the mean is taken over a whole update, which may be split into micro-batches and processes.
    """

    name: ClassVar[str]
    layout: ClassVar[Layout]
    """Stacks of the model that the objective trains."""
    family: ClassVar[Family]
    """Task of the objective; objectives of one family share a hue in figures."""
    needs_translation: ClassVar[bool] = False
    one_vocabulary: ClassVar[bool] = False
    """Whether the decoder writes both translations and text, so that both sides must have the same token ids."""
    writes: ClassVar[Writes] = "part"
    """Target of a decoder with an encoder, which determines the decoder's input in measures."""
    reads: ClassVar[Reads] = "sentence"
    """Unit of an example; every unit but the sentence needs a corpus with documents."""
    teacher: str = ""
    """The objective of the plan whose trained model is the teacher; "": none."""
    needs_counts: ClassVar[bool] = False
    """Whether noise samples tokens by their frequency in the training text (`Vocabulary.counts`)."""
    draws: ClassVar[bool] = False
    """Whether the loss draws random numbers, so that every example needs its own noise."""
    uses_all_parameters: ClassVar[bool] = True
    """Whether every forward pass uses every trained parameter."""
    compares_examples: ClassVar[bool] = False
    """Whether the loss compares the examples of an update, so that each process must compute the whole update."""
    term_weights: ClassVar[dict[str, float]]
    """Weight of each term's mean in the minimised loss; the first term belongs to the measured model."""
    fields: ClassVar[Mapping[str, _batch.Field]] = _batch.SENTENCE_FIELDS
    """Padding of the arrays from `corrupt`, by name."""
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS,)
    """Scores on held-out text that decide whether the task was learned; all must pass."""
    own_code: ClassVar[str] = ""
    """Digest of the user's file that defines the objective; "": it belongs to the package."""

    @property
    def predicted_share(self) -> float:
        """Approximate share of the text's tokens that the objective predicts."""
        return 1.0

    @property
    def can_write(self) -> bool:
        """Whether the decoder writes all or part of the text, given only the encoder's input."""
        return (
            self.layout == "encoder-decoder"
            and not self.needs_translation
            and self.fields.keys() == _batch.SENTENCE_FIELDS.keys()
        )

    @property
    def parts(self) -> "dict[str, AbstractObjective]":
        """The single tasks as objectives, by name; empty unless each example is assigned to one of several tasks."""
        return {}

    @property
    def translation_prefix(self) -> str | None:
        """Text before a sentence to be translated; None if the objective does not translate."""
        return "" if self.needs_translation else None

    @property
    def needs_mask(self) -> bool:
        """Whether the noise uses mask tokens, which the tokenizer must then have."""
        return False

    def num_sentinels(self, longest: int) -> int:
        """Maximum number of sentinel tokens for a text of `longest` tokens; 0 if the noise uses none."""
        return 0

    def added_tokens(self, vocabulary: Vocabulary) -> int:
        """Maximum number of tokens that the objective adds before a text."""
        return 0

    @abstractmethod
    def corrupt(
        self, example: _batch.Example, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> _batch.Corrupted:
        """Turn one clean example into named arrays: inputs, labels, and other inputs of the loss."""

    def reads_instead(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """All input arrays by name for a model that reads `inputs`, int64 (token,), at the same positions instead."""
        return {"input_ids": inputs}

    def noise_epoch(self, epoch: int) -> int:
        """The epoch that keys the noise; if there is a fixed number of noisy copies, the number of the epoch's copy."""
        return epoch

    def for_evaluation(self) -> "AbstractObjective":
        """The objective for evaluation on held-out sentences, without the noise that is only for training."""
        return self

    def collate(
        self,
        examples: Sequence[_batch.Corrupted],
        vocabulary: Vocabulary,
        target: Vocabulary | None = None,
        noise: _batch.Noise | None = None,
    ) -> _batch.Batch:
        """Pad examples into one batch; `target` is the vocabulary of the decoder's side if it has its own."""
        return collate(examples, self.fields, vocabulary, target, noise)

    def counts(self, batch: _batch.Batch) -> dict[str, int]:
        """Number of items over which each loss term is averaged; it is known before the forward pass."""
        return dict.fromkeys(self.term_weights, batch.supervised_tokens)

    @abstractmethod
    def loss(
        self, module: PreTrainedModel, batch: _batch.Batch, noise: _batch.Noise, label_smoothing: float = 0.0
    ) -> dict[str, _batch.LossTerm]:
        """Sum (nats) and count of each loss term on one batch.

        `noise` is the batch's own noise (`batch.noise`) and the only source of random numbers in a loss.
        """

    def on_text(self) -> "AbstractObjective":
        """The objective whose noise applies to single texts; objectives on pairs return their part for single texts."""
        return self.for_evaluation()

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The part of the trained module that is saved, loaded by the Auto classes and measured; by default, all of it.

        An objective that trains several models keeps them in one `PreTrainedModel`, as `EncoderDecoderModel` does.
        """
        return module

    def further_models(self, module: PreTrainedModel) -> dict[str, PreTrainedModel]:
        """Further parts of the module that are separate models, each saved in a subfolder of its name."""
        return {}

    @property
    def exports_a_part(self) -> bool:
        """Whether the objective trains more than the model that is saved."""
        return type(self).exported is not AbstractObjective.exported

    def guesses(self, batch: _batch.Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """Sum of each loss term for a frequency baseline; `unigram` is -log p of each token id.

        By default, every term predicts the tokens in `labels`.
        """
        labels = batch.labels[batch.labels != _batch.UNSUPERVISED].cpu().numpy()
        return dict.fromkeys(self.term_weights, float(unigram[labels].sum()))

    def answers(self, module: PreTrainedModel, batch: _batch.Batch, noise: _batch.Noise) -> dict[str, Answers]:
        """The model's answers to questions other than predicting tokens, by the metric's name; empty by default."""
        return {}

    def weighted(self, means: Mapping[str, float]) -> float:
        """The minimised loss, computed from the mean of each term."""
        return sum(self.term_weights[name] * mean for name, mean in means.items())

    def example(
        self, sentences: Sequence[np.ndarray], vocabulary: Vocabulary, translation: np.ndarray | None = None
    ) -> _batch.Example:
        """Build an example, as the objective reads it, from token ids of sentences without special tokens."""
        start, end = [vocabulary.start], [vocabulary.end]
        target = None if translation is None else np.concatenate([start, translation, end])
        return _batch.Example(texts=(np.concatenate([start, *sentences, end]),), translation=target)

    def shown(self, batch: _batch.Batch, names: Sequence[str], target_names: Sequence[str]) -> _batch.Shown:
        """Inputs and targets of a batch of one example as readable tokens; the names of ids on both sides are given."""
        inputs = {"tokens": _batch.tokens_of(batch.input_ids, names)}
        if batch.decoder_input_ids is not None:
            inputs = {"encoder": inputs["tokens"], "decoder": _batch.tokens_of(batch.decoder_input_ids, target_names)}
        return _batch.Shown(
            inputs=inputs, targets={next(iter(self.term_weights)): _batch.tokens_of(batch.labels, target_names)}
        )


OPTION = "token_dropout"


def drop_tokens(
    tokens: np.ndarray, probability: float, generator: np.random.Generator, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Replace each non-special token, independently with `probability`, by one drawn uniformly from non-special ids.

    Returns the new tokens and a bool array of the positions that were drawn (a draw may repeat the old token). This
    separates the effect of corrupted inputs from that of masked prediction, since labels stay clean. Source:
    [@voita2019evolution].
    """
    selected = (generator.random(len(tokens)) < probability) & ~vocabulary.is_special[tokens]
    if not selected.any():
        return tokens, selected
    noisy = tokens.copy()
    noisy[selected] = vocabulary.ordinary[generator.integers(len(vocabulary.ordinary), size=selected.sum())]
    return noisy, selected


class TokenDropout:
    """Mixin that drops tokens of the model's (or encoder's) input in training; put it before an objective in the bases.

    The objective draws its own noise first, so that it hides the same tokens with and without token dropout.
    """

    token_dropout: float

    def corrupt(
        self, example: _batch.Example, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> _batch.Corrupted:
        """Apply the objective's own noise, then `drop_tokens` to `input_ids`; labels are unchanged."""
        own: _batch.Corrupted = super().corrupt(example, generator, vocabulary)  # type: ignore[misc] (of the objective behind)
        inputs, dropped = drop_tokens(own.input_ids, self.token_dropout, generator, vocabulary)
        return _batch.Corrupted(arrays={**own.arrays, **super().reads_instead(inputs)}, selected=own.selected | dropped)  # type: ignore[misc]

    def for_evaluation(self) -> AbstractObjective:
        cls, options = self.__reduce__()[1]
        return cls(**{name: value for name, value in options.items() if name != OPTION}).for_evaluation()

    def __reduce__(self) -> tuple[Any, tuple[type[AbstractObjective], dict[str, Any]]]:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return _rebuilt, (type(self).__bases__[1], options)


@cache
def with_token_dropout(cls: type[AbstractObjective]) -> type[AbstractObjective]:
    """The objective with the additional option `token_dropout`: the share of input tokens replaced by random ones."""
    return dataclasses.make_dataclass(  # type: ignore[return-value] (its second base is an objective)
        cls.__name__,
        [(OPTION, Probability, dataclasses.field(default=0.0))],
        bases=(TokenDropout, cls),
        namespace={"__module__": __name__},
        frozen=True,
        kw_only=True,
    )


def _rebuilt(cls: type[AbstractObjective], options: dict[str, Any]) -> AbstractObjective:
    return with_token_dropout(cls)(**options)
