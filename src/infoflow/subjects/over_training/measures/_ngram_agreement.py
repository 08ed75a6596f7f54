"""Predictions compared with n-gram models of the training text, and the times of n-gram stages under two warm-ups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch

from infoflow.flow import NO_LABEL, Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, stream
from infoflow.heads import ScoredBatch, SentenceScorer, no_loss
from infoflow.models import Model
from infoflow.results import KEYS, Column, TableSchema, estimate_columns, ratio_estimate
from infoflow.training import of_whole_course

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
    description="How close a model's predictions are to n-gram models of the text in `corpus`, in the model's own "
    "tokens. A masked LM is compared at its hidden tokens, with bigrams where the neighbour is visible; a "
    "translation decoder, which also sees its source, as a language model of its target.",
    light=True,
    columns=(
        Column("order", "int64", "tokens", "n: 1 unigram, 2 bigram, 3 trigram"),
        Column(
            "context",
            "string",
            "",
            "before: n-grams of a token and the tokens before it; after: bigrams of a token and the token after it",
        ),
        Column(
            "measure",
            "string",
            "",
            "kl_from_ngram: KL(Q||P), Q the n-gram model, P the model; kl_to_ngram: KL(P||Q); "
            "loss_on_samples: the model's loss on texts that were drawn from Q (the source stays the sentence's own)",
        ),
        Column("corpus", "string", "", "text in which the n-grams were counted"),
        *estimate_columns(
            "nats per token",
            "mean over predicted tokens",
            "the same for a model that gives every token of the vocabulary the same probability",
            "predicted tokens",
        ),
    ),
)


class NgramAgreement(Intervention):
    r"""Divergences between the model and n-gram models of its training text, and its loss on texts drawn from them.

    $$ \mathrm{KL}(Q_n \,\|\, P) = \frac1N \sum_i \sum_w Q_n(w \mid h_i) \ln \frac{Q_n(w \mid h_i)}{P(w \mid x_i)} $$

    and the reverse; Q is from `NgramModel`. Over updates, these divergences have minima, that of unigrams first
    [@chang2022]. Counts come from the training corpus that the caller names, else from the measured one, and are made
    once per process.

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
            for order, context, numbers, held in self._divergences(reader, batch):
                for name, values in numbers.items():
                    sums.add((order, context, name), batch.blocks[held], *values)
        if not sums.held:
            raise NothingToRead(f"no sentence of {reader.corpus.name} has a token to predict")
        highest = min(self.order, 2) if reader.model.task == "masked-lm" else self.order
        for order in range(1, highest + 1) if self.samples else ():
            key = order, "before", "loss_on_samples"  # drawn from left to right
            for batch in drawn_tokens(reader, options, order, self.samples):
                uniform = np.full(len(batch.labels), np.log(batch.log_chances.shape[1]))
                sums.add(key, batch.blocks, batch.losses, uniform)
        rows = [{"corpus": reader.counted.name, **row} for row in sums.rows()]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _divergences(
        self, reader: Reader, batch: ScoredTokens
    ) -> Iterator[tuple[int, Direction, dict[str, tuple[np.ndarray, np.ndarray]], np.ndarray]]:
        """By order and context: each measure's values, those of the uniform model, and the rows of the tokens."""
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
                    yield level + 1, direction, numbers, rows[seen]


class _Sums:
    """Sums of values, of the uniform model's values, and counts, by bootstrap block, for order, context and measure."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, str, str], np.ndarray] = {}

    def add(self, key: tuple[int, str, str], blocks: np.ndarray, values: np.ndarray, uniform: np.ndarray) -> None:
        sums = self.held.setdefault(key, np.zeros((3, NUM_BLOCKS)))
        for row, weights in zip(sums, (values, uniform, None), strict=True):
            row += np.bincount(blocks, weights, NUM_BLOCKS)

    def rows(self) -> Iterator[dict[str, Any]]:
        for (order, context, measure), (values, uniform, counts) in self.held.items():
            if counts.any():
                numbers = ratio_estimate(values, counts, float(uniform.sum() / counts.sum()), scale="positive")
                yield {"order": order, "context": context, "measure": measure, **numbers}


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
    """Draw a text for each of the rows, with as many ordinary tokens."""
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
    has_past = steps > 0
    labels[at[has_past], steps[has_past] - 1] = inputs[at[has_past], steps[has_past]]
    changed = replace(given, input_ids=torch.from_numpy(inputs), labels=torch.from_numpy(labels))
    padded = replace(padded, streams={**padded.streams, name: changed})
    if reader.model.task == "masked-lm":
        padded = reader.corrupted_batch(padded, "ngram-samples", reader.seed)
    padded = padded.to(reader.model.device)
    return ScoredBatch(padded=padded, labels=padded.streams[name].labels)


# Times of n-gram stages in two training runs that differ only in their warm-up.

WARMUP_FACTOR = 4
"""How many times as long the second warm-up must be; the published numbers say nothing about other factors."""
CHECKPOINT_STEPS = {"updates": 1, "rates": 2}
"""Tolerance of a stage's time, in steps between checkpoints.

Each minimum is at most half a step from its checkpoint, and while the learning rate rises, its sum grows with the
square of the updates.
"""
_ROUNDING = 0.05  # tolerance of `WARMUP_FACTOR`, since a warm-up is a whole number of updates
STAGES_BY_WARMUP = TableSchema(
    name="stages_by_warmup",
    description="How much later the divergence KL(Q||P) from an n-gram model reaches its minimum with a longer "
    "warm-up; the control is another seed with the same warm-up.",
    made_by="it needs two studies that differ in their warm-up alone, one four times as long, with a schedule in "
    "[checkpoints]: compare their folders with infoflow over-scale RUN RUN",
    columns=(
        *KEYS,
        Column("compared", "string", "", "warm-up: the same seed with a longer one; seed: the next seed, same warm-up"),
        Column("other_seed", "int64", "", "seed of the other training"),
        Column("warmup", "int64", "updates", "warm-up of the training"),
        Column("other_warmup", "int64", "updates", "warm-up of the other training"),
        Column("order", "int64", "tokens", "n: 1 unigram, 2 bigram, 3 trigram"),
        Column("measure", "string", "", "updates, or the sum of the learning rates (rates), until the minimum"),
        Column("value", "float64", "doublings", "log2 of the ratio other / this; NaN: no minimum inside the training"),
        Column(
            "gap",
            "float64",
            "doublings",
            "distance in updates from a minimum to its farther neighbouring checkpoint, the larger of both minima: no "
            "value is more exact",
        ),
        Column("replicates", "list<float64>", "doublings", "the value over draws of sentences"),
    ),
)


def is_longer_warmup(short: int, long: int) -> bool:
    """Whether the second warm-up is four times the first (both in updates), up to rounding."""
    return short > 0 and abs(long / short / WARMUP_FACTOR - 1) <= _ROUNDING


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WarmedUp:
    """A study's table `ngram_agreement_over_training`, and the learning rates of its training runs."""

    name: str
    warmup: int  # updates
    rates: float  # sum over all updates
    agreement: pd.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class _Minimum:
    """The minimum of one curve: the estimate and its replicates."""

    row: Mapping[Any, Any]  # a row of the curve, for its keys
    updates: np.ndarray  # (1 + R) log2
    rates: np.ndarray  # (1 + R) log2 of the sum of learning rates
    gap: float  # doublings
    inside: bool  # neither at the first nor at the last checkpoint


def stages_by_warmup(short: WarmedUp, long: WarmedUp) -> pd.DataFrame:
    r"""The table `STAGES_BY_WARMUP` of two studies.

    $$ \log_2 \frac{t^*_{long}}{t^*_{short}}, \qquad \log_2 \frac{S_{long}(t^*_{long})}{S_{short}(t^*_{short})} $$

    with \(t^* = \arg\min_{t > 0} KL(Q_n \Vert P_t)\) over the checkpoints and \(S(t) = \sum_{s \le t} \eta_s\) of the
    learning rates. While the rate rises, \(S(t) = \eta_{max} t^2 / 2w\), so four times the warm-up w and the same S
    mean twice as many updates.
    """
    if not is_longer_warmup(short.warmup, long.warmup):
        raise UserError(
            f"The second warm-up must be {WARMUP_FACTOR} times the first. Got {short.warmup} updates in "
            f"{short.name} and {long.warmup} in {long.name}."
        )
    first, second = _minima(short), _minima(long)
    rows = []
    for (key, order, seed), own in first.items():
        others = {"warm-up": (second.get((key, order, seed)), seed, long.warmup)}
        seeds = sorted(one[2] for one in first if one[:2] == (key, order))
        following = seeds[(seeds.index(seed) + 1) % len(seeds)]
        if following != seed:
            others["seed"] = (first[key, order, following], following, short.warmup)
        for compared, (other, other_seed, warmup) in others.items():
            if other is not None:
                place = {"compared": compared, "other_seed": other_seed, "warmup": short.warmup, "other_warmup": warmup}
                rows += [{**place, "order": order, **row} for row in _compared(own, other)]
    return STAGES_BY_WARMUP.conform(pd.DataFrame(rows, columns=pd.Index(STAGES_BY_WARMUP.column_names)))


def _minima(run: WarmedUp) -> dict[tuple[tuple[str, ...], int, int], _Minimum]:
    """The minima of a study's curves, by recipe, order of the n-grams and seed."""
    frame = run.agreement
    frame = frame[(frame["measure"] == "kl_from_ngram") & (frame["context"] == "before") & (frame["update"] > 0)]
    recipe = ["objective", "variant", "architecture", "start"]
    found = {}
    for names, own in frame.groupby([*recipe, "order", "seed"], sort=True):
        *of_recipe, order, seed = cast("tuple[Any, ...]", names)
        found[tuple(map(str, of_recipe)), int(order), int(seed)] = _minimum(own.sort_values("update"), run.rates)
    return found


def _minimum(rows: pd.DataFrame, rates: float) -> _Minimum:
    draws = np.array([np.asarray(own, dtype=float) for own in rows["replicates"]])  # (update, R)
    places = np.concatenate([rows[["value"]].to_numpy(float), draws], axis=1).argmin(axis=0)
    updates = np.log2(rows["update"].to_numpy(float))
    sums = np.log2(rates * rows["lr_share"].to_numpy(float))
    place, last = int(places[0]), len(rows) - 1
    gap = max(updates[min(place + 1, last)] - updates[place], updates[place] - updates[max(place - 1, 0)])
    return _Minimum(rows.iloc[0].to_dict(), updates[places], sums[places], float(gap), 0 < place < last)


def _compared(own: _Minimum, other: _Minimum) -> Iterator[dict[str, Any]]:
    inside = own.inside and other.inside
    for measure, mine, theirs in (("updates", own.updates, other.updates), ("rates", own.rates, other.rates)):
        common = min(len(mine), len(theirs))
        grown = theirs[:common] - mine[:common]
        yield {
            **of_whole_course(own.row),
            "measure": measure,
            "value": grown[0] if inside else np.nan,
            "gap": max(own.gap, other.gap),
            "replicates": grown[1:].tolist(),
        }
