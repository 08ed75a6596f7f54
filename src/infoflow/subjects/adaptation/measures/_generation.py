"""Text generation: a summary, a question, a translation, the text of some facts, a label as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.architectures import Layout
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import LATER, Count, Weight
from infoflow.models import evaluating
from infoflow.objectives import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Example, Family, Field, LossTerm, Noise

from ._generation_rows import BEGINS, GenerationRows
from ._options import check_options
from ._task import AbstractTask, Predictions, Score, Shape
from ._text_metrics import TextMetric, exact_text, text_scores
from ._write import Search, Written, write
from ._written_losses import GenerationSources, written_losses


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Generation(AbstractTask):
    """The text to write (`translation`, with alternatives in `references`) after each `text`.

    In a model with an encoder, the encoder reads the source and the decoder's loss is on the target. A single decoder
    reads source and target in one row, with the loss on the target; with `two_sided` the source has bidirectional
    attention, as in the training of a prefix language model ([@raffel2020exploring]).
    """

    name: ClassVar[str] = "generation"
    shape: ClassVar[Shape] = "generation"
    layout: ClassVar[Layout] = "encoder-decoder"
    family: ClassVar[Family] = "translate"
    head: ClassVar[str] = "AutoModelForSeq2SeqLM"
    """For a single decoder: AutoModelForCausalLM. Both keep their pretrained head."""
    needs_translation: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"generation": 1.0}
    fields: ClassVar[Mapping[str, Field]] = {
        **SENTENCE_FIELDS,
        BEGINS: Field(),
    }

    task: str
    labels: tuple[str, ...] = ()
    prefix: str = ""  # put before every text to name the task: "summarize: "
    max_target: Count = 64  # maximum number of target tokens, end included
    beams: Count = 1  # beams in generation; 1: greedy
    length_penalty: Weight = 1.0  # exponent of the length that divides a text's log-probability; for beams only
    two_sided: bool = False  # for a single decoder: bidirectional attention on the source
    main: TextMetric = "rougeL"  # the metric for model selection
    # Whether the model reads the first target token without predicting it, as BERT's decoders do. `tune` sets it from
    # the model.
    begin_is_read: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        check_options(self)

    def rows(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> GenerationRows:
        """Sources and targets as token ids; row i is row i of the corpus.

        Args:
            corpus: Texts with their translations.
            tokenizer: Tokenizer of both sides, unless the model has two.
            max_length: Maximum number of source tokens; a single decoder must have `max_target` more positions.
            target_tokenizer: Tokenizer of the target side, if the model has a separate one.

        Raises:
            UserError: As in `GenerationRows`.
        """
        return GenerationRows(corpus, tokenizer, target_tokenizer, self.prefix, max_length, self.max_target)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Source and target as they are."""
        assert example.translation is not None
        arrays = {"input_ids": example.text, "labels": example.translation, **example.labels}
        return Corrupted(arrays=arrays, selected=np.zeros(len(example.text), dtype=bool))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of target tokens with a loss."""
        read = int(batch[BEGINS].sum()) if self.begin_is_read else 0
        return {self.name: batch.supervised_tokens - read}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the targets' tokens."""
        losses = written_losses(module, _asked(batch), self.two_sided, label_smoothing)
        return {self.name: LossTerm(total=losses.sum(), count=self.counts(batch)[self.name])}

    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """−log p of each whole target, nats."""
        return written_losses(module, _asked(batch), self.two_sided)

    def predict(
        self, module: PreTrainedModel, rows: GenerationRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The generated texts; `values` are the geometric mean of the probabilities of their tokens."""
        search = Search(
            beams=self.beams, length_penalty=self.length_penalty, most=self.max_target, two_sided=self.two_sided
        )
        said, values = [""] * len(corpus), np.zeros(len(corpus))
        with evaluating(module):
            for written in write(module, rows, search, batch_tokens):
                losses = written_losses(module, _again(written), self.two_sided)
                for row, ids, loss in zip(written.rows.tolist(), written.ids, losses.tolist(), strict=True):
                    said[row] = rows.side.tokenizer.decode(ids, skip_special_tokens=True).strip()
                    values[row] = np.exp(-loss / len(ids))
        return Predictions(said=tuple(said), wanted=tuple(right[0] for right in wanted_texts(corpus)), values=values)

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """ROUGE, BLEU, chrF and exact match (see `text_scores`), `main` first."""
        found = text_scores(predictions.said, wanted_texts, corpus, train)
        return sorted(found, key=lambda score: score.metric != self.main)

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which texts equal a reference, ignoring case and spacing."""
        pairs = zip(predictions.said, wanted_texts(corpus), strict=True)
        return np.array([exact_text(*each) == 1 for each in pairs], dtype=bool)


def wanted_texts(corpus: Corpus) -> list[list[str]]:
    """The references of each example, its translation first."""
    more = corpus.column("references") if "references" in corpus.columns else ((),) * len(corpus)
    return [[text, *(rest or ())] for text, rest in zip(corpus.column("translation"), more, strict=True)]


def _asked(batch: Batch) -> GenerationSources:
    return GenerationSources(sources=batch.input_ids, real=batch.real, targets=batch.labels, begins=batch[BEGINS])


def _again(written: Written) -> GenerationSources:
    """The generated texts as targets."""
    longest = max(map(len, written.ids))
    targets = torch.full((len(written.ids), longest), UNSUPERVISED, device=written.sources.device)
    for row, ids in enumerate(written.ids):
        targets[row, : len(ids)] = torch.tensor(ids, device=targets.device)
    return GenerationSources(
        sources=written.sources, real=written.mask.bool(), targets=targets, begins=torch.zeros_like(targets[:, 0])
    )
