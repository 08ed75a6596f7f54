"""The divergence between a model's predictions and n-gram models of its training text."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch

from infoflow.flow import NO_LABEL, Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, stream
from infoflow.heads import ScoredBatch, SentenceScorer, no_loss
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._ngrams import NO_TOKEN, NgramModel
from ._token_losses import (
    SENTENCES,
    Direction,
    ScoredTokens,
    checked_sentences,
    counted_ngrams,
    predicted,
    scored_and_kept,
)

_LONGEST = 5
_DRAWN: WeakKeyDictionary[NgramModel, dict[Any, list[np.ndarray]]] = WeakKeyDictionary()

NGRAM_AGREEMENT = TableSchema(
    name="ngram_agreement",
    version=1,
    description="How close a model's predictions are to n-gram models of the text in `corpus`, in the model's own "
    "tokens. A masked LM is compared at its hidden tokens, with bigrams where the neighbour is visible; a "
    "decoder of translations, which sees its source too, as the language model that it is of its target.",
    light=True,
    columns=(
        Column(name="order", dtype="int64", unit="tokens", description="n: 1 unigram, 2 bigram, 3 trigram"),
        Column(
            name="context",
            dtype="string",
            unit="",
            description="before: n-grams of a token and those before it; after: of a token and the one after it",
        ),
        Column(
            name="measure",
            dtype="string",
            unit="",
            description="kl_from_ngram: KL(Q||P), Q the n-gram model, P the model; kl_to_ngram: KL(P||Q); "
            "loss_on_samples: the model's loss on texts that were drawn from Q (the source stays the sentence's own)",
        ),
        Column(name="corpus", dtype="string", unit="", description="where the n-grams were counted"),
        *estimate_columns(
            "nats per token",
            "mean over predicted tokens",
            "of a model that gives every token of the vocabulary the same probability",
            "predicted tokens",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    order: int
    context: Direction


class NgramAgreement(Intervention):
    r"""Divergences between the model and n-gram models of its training text, and its loss on texts drawn from them.

    $$ \mathrm{KL}(Q_n \,\|\, P) = \frac1N \sum_i \sum_w Q_n(w \mid h_i) \ln \frac{Q_n(w \mid h_i)}{P(w \mid x_i)} $$

    and the reverse; Q is from `NgramModel`. Over updates these have minima, unigram first [@chang2022]. Counts come
    from the training corpus that the caller names, else from the measured one, and are made once per process.

    Drawn texts are as long as sentences of the corpus: if the n-gram model ends a sentence early, it starts another.
    Special tokens keep their positions in the model's input, and only the drawn tokens count.

    Args:
        order: Largest n, up to 5; for a masked LM only 1 and 2.
        sentences: At most this many, chosen by a hash of their text.
        samples: Number of texts drawn for each n; 0: none.
    """

    table: ClassVar[TableSchema] = NGRAM_AGREEMENT

    def __init__(self, order: int = 3, sentences: int | None = SENTENCES, samples: int = 256) -> None:
        if not 1 <= order <= _LONGEST or samples < 0:
            raise UserError(
                f"n-grams have an order from 1 to {_LONGEST}, and samples are a number from 0. "
                f"Got order {order}, {samples} samples."
            )
        self.order, self.sentences, self.samples = order, checked_sentences(sentences), samples

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        sums = _Sums()
        for batch in scored_and_kept(reader, options, self.sentences, back=max(self.order - 1, 1)):
            for kind, numbers, held in self._divergences(reader, batch):
                for name, values in numbers.items():
                    sums.add(kind, name, batch.blocks[held], *values)
        if not sums.held:
            raise NothingToRead(f"no sentence of {reader.corpus.name} has a token to predict")
        for kind in self._kinds(reader) if self.samples else ():
            for batch in drawn_tokens(reader, options, kind.order, self.samples):
                uniform = np.full(len(batch.labels), np.log(batch.log_chances.shape[1]))
                sums.add(kind, "loss_on_samples", batch.blocks, batch.losses, uniform)
        rows = [
            {"order": kind.order, "context": kind.context, "measure": name, "corpus": reader.counted.name, **numbers}
            for kind, name, numbers in sums.rows()
        ]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _kinds(self, reader: Reader) -> list[_Kind]:
        """The kinds of n-grams to draw, always from left to right."""
        highest = min(self.order, 2) if reader.model.task == "masked-lm" else self.order
        return [_Kind(order=order, context="before") for order in range(1, highest + 1)]

    def _divergences(
        self, reader: Reader, batch: ScoredTokens
    ) -> Iterator[tuple[_Kind, dict[str, tuple[np.ndarray, np.ndarray]], np.ndarray]]:
        """For each kind of n-gram: the measures' values, those of the uniform model, and their sentences."""
        size, masked = batch.log_chances.shape[1], reader.model.task == "masked-lm"
        highest = min(self.order, 2) if masked else self.order
        directions: list[Direction] = ["before", "after"] if masked and highest > 1 else ["before"]
        for part in batch.chunks():
            logs = batch.log_chances[part].double().cpu().numpy()
            rows = np.arange(len(batch.labels))[part]
            for direction in directions:
                context = batch.before[part] if direction == "before" else batch.after[part, None]
                found = counted_ngrams(reader, highest, size, direction).divergences(logs, context, highest)
                for level in range(0 if direction == "before" else 1, highest):
                    # A neighbour that is also hidden gives a masked LM no information.
                    seen = context[:, 0] != NO_TOKEN if masked and level else np.ones(len(rows), dtype=bool)
                    numbers = {
                        "kl_from_ngram": (found.from_ngram[level][seen], found.from_ngram_uniform[level][seen]),
                        "kl_to_ngram": (found.to_ngram[level][seen], found.to_ngram_uniform[level][seen]),
                    }
                    yield _Kind(order=level + 1, context=direction), numbers, rows[seen]


class _Sums:
    """Sums of values, of the uniform model's values, and counts, by bootstrap block."""

    def __init__(self) -> None:
        self.held: dict[tuple[_Kind, str], np.ndarray] = {}

    def add(self, kind: _Kind, name: str, blocks: np.ndarray, values: np.ndarray, uniform: np.ndarray) -> None:
        sums = self.held.setdefault((kind, name), np.zeros((3, NUM_BLOCKS)))
        for row, weights in zip(sums, (values, uniform, None), strict=True):
            row += np.bincount(blocks, weights, NUM_BLOCKS)

    def rows(self) -> Iterator[tuple[_Kind, str, dict[str, Any]]]:
        for (kind, name), (values, uniform, counts) in self.held.items():
            if counts.any():
                yield kind, name, ratio_estimate(values, counts, float(uniform.sum() / counts.sum()), scale="positive")


def drawn_tokens(reader: Reader, options: PassOptions, order: int, num: int) -> Iterator[ScoredTokens]:
    """The model's predictions on `num` texts drawn from Q_order, as long as sentences of the corpus."""
    scorer = SentenceScorer(reader)
    texts: dict[int, np.ndarray] | None = None
    chosen = scorer.choose(num, "ngram-samples")
    for batch in scorer.batches(chosen, options.tokens_per_batch):
        if texts is None:
            texts = _drawn(reader, order, chosen, scorer.logits(batch).shape[-1])
        yield predicted(scorer, _replaced(reader, batch.padded.rows, texts), back=1)


def _drawn(reader: Reader, order: int, rows: np.ndarray, size: int) -> dict[int, np.ndarray]:
    """A text for each of the rows, with as many ordinary tokens."""
    name = reader.model.anatomy.predicts.name
    read = [reader.sentence_rows(int(row), "clean", 0)[name] for row in rows]
    lengths = tuple(int((~one.special).sum()) for one in read)
    starts = [int(one.tokens[0]) for one in read if len(one.tokens) and bool(one.special[0])]
    counts = counted_ngrams(reader, order, size)
    held = _DRAWN.setdefault(counts, {})
    key = (order, reader.seed, lengths)
    if key not in held:
        never = reader.tokenizer(name).all_special_ids
        generator = stream("ngram-samples", reader.seed, order)
        held[key] = counts.sample(order, lengths, generator, starts[0] if starts else NO_TOKEN, never)
    return dict(zip(rows.tolist(), held[key], strict=True))


def _replaced(reader: Reader, rows: np.ndarray, texts: dict[int, np.ndarray]) -> ScoredBatch:
    """Sentences whose ordinary tokens are replaced by the drawn texts, with only these to predict."""
    padded, name = reader.padded(rows), reader.model.anatomy.predicts.name
    given = padded.streams[name]
    valid = given.valid.numpy()
    inputs, labels = given.input_ids.numpy().copy(), np.full(valid.shape, NO_LABEL)
    at, steps = np.nonzero(valid)
    inputs[at, steps] = np.concatenate([texts[row] for row in rows.tolist()])
    told = steps > 0
    labels[at[told], steps[told] - 1] = inputs[at[told], steps[told]]
    changed = replace(given, input_ids=torch.from_numpy(inputs), labels=torch.from_numpy(labels))
    padded = replace(padded, streams={**padded.streams, name: changed})
    if reader.model.task == "masked-lm":
        padded = reader.corrupted_batch(padded, "ngram-samples", reader.seed)
    padded = padded.to(reader.model.device)
    return ScoredBatch(padded=padded, labels=padded.streams[name].labels)
