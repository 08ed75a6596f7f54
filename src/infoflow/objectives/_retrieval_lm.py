r"""Masked language modelling with a passage to look up: six arms that differ only in which passage may be read.

$$ -\log p(y \mid x) = -\log \sum_{z \in C(x) \cup \{\varnothing\}} \pi(z) \prod_j p(y_j \mid z, x) $$

The masked query is a pure function of its example; the candidates depend on weights, so the loss chooses them, from the
library of the `RetrievalModel` that is trained.

| name              | candidates                       | trained beside the reader |
|-------------------|----------------------------------|---------------------------|
| `closed-book`     | none: the null passage alone     | –                         |
| `read-gold`       | the fact's passage, null         | b                         |
| `read-random`     | a random other passage, null     | b                         |
| `retrieve-bm25`   | k by BM25, null                  | a, b                      |
| `retrieve-frozen` | k by a fixed retriever, null     | a, b                      |
| `retrieve-learned`| k by a retriever, null           | the retriever             |

Source: [@guu2020realm].
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Count, CountOrNone, Limits, Probability, UserError
from infoflow.retrieval import Candidates, RetrievalModel, document_posterior, fixed_choice, marginal_log_likelihood

from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Field
from ._example import Example
from ._loss import LossTerm
from ._masking import mask_id
from ._noise import Noise
from ._objective import AbstractObjective, Family

Masking = Literal["salient", "random-token", "random-span"]
Refresh = Annotated[int, Limits(at_least=-1, at_most=10**9)]


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalLM(AbstractObjective):
    """What the six arms share: see the table of this module."""

    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "fill in"
    uses_all_parameters: ClassVar[bool] = False  # a retriever is frozen at first, and not asked for null readings
    fields: ClassVar[Mapping[str, Field]] = {
        **SENTENCE_FIELDS,
        "gold": Field(pad=-1),  # the passage that answers; −1: none does
        "excluded": Field(pad=-1),  # passages that may not be read
        "draw": Field(),  # a random passage follows from it
        "null_only": Field(pad=False),  # whether the query is read without a passage
    }

    k: Count = 2  # passages that a search brings; 7 in REALM
    level: Literal["sequence", "token"] = "sequence"  # where the passage is summed out
    null_share: Probability = 0.1  # of queries that are read without a passage, the same ones in every arm
    null_share_only: bool = False  # of closed-book: train on that share alone, as many null readings as the other arms
    masking: Masking = "salient"  # the other two mask as many tokens elsewhere, as controls
    max_predictions: Count = 10  # masks of a query at most
    refresh_every: Refresh = 50  # updates between two builds of the index; −1: never built again
    lag: Annotated[int, Limits(at_least=0, at_most=10**9)] = 0  # the index is of the weights so many updates ago
    freeze_retriever: Probability = 1 / 3  # share of the updates in which a learned retriever stays as it is
    retriever_rate: Annotated[float, Limits(above=0, at_most=10)] = 0.2  # of the retriever, in the reader's rate
    # Above 0 candidates are the right passage and so many others by BM25, whatever weights say; the retriever is not
    # frozen: what the loss change is taken on.
    fixed_negatives: CountOrNone = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        if self.refresh_every == 0 or (self.refresh_every > 0 and self.lag >= self.refresh_every):
            raise UserError(
                f"refresh_every must be at least 1, or −1 for never, and lag below it. Got {self.refresh_every} and "
                f"{self.lag}.\nRefresh less often, or with a smaller lag."
            )

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Mask one span; what is drawn is drawn in the same order by every arm.

        Raises:
            UserError: The example does not say where its spans are.
        """
        tokens = example.text
        if "spans" not in example.labels:
            raise UserError(
                f"{self.name} reads queries with their spans and passages. Got a plain sentence.\n"
                "Make them with infoflow.training.query_rows or fact_query_rows."
            )
        null_only = generator.random() < self.null_share
        draw = int(generator.integers(1 << 62))
        positions = self._positions(tokens, example.labels["spans"], generator, vocabulary)
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        if null_only or not self.null_share_only:
            labels[positions] = tokens[positions]
        inputs = tokens.copy()
        inputs[positions] = mask_id(vocabulary, self.name)
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        beside = {"gold": example.labels["gold"], "excluded": example.labels["excluded"]}
        beside |= {"draw": np.array(draw), "null_only": np.array(null_only)}
        return Corrupted(arrays={"input_ids": inputs, "labels": labels, **beside}, selected=selected)

    def for_evaluation(self) -> AbstractObjective:
        """Every query is read with its candidates."""
        return replace(self, null_share=1.0 if self.null_share_only else 0.0)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The reader, a plain masked LM; the retriever lies beside it."""
        return module.reader if isinstance(module, RetrievalModel) else module

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """−log p(y|x) of the queries, over the number of masked tokens.

        Raises:
            UserError: The module is no `RetrievalModel`, or label smoothing is asked for.
        """
        if not isinstance(module, RetrievalModel):
            raise UserError(
                f"{self.name} trains a RetrievalModel. Got a {type(module).__name__}.\n"
                "Put the reader into one: infoflow.objectives.retrieval_model."
            )
        if label_smoothing:
            raise UserError(
                f"training.label_smoothing must be 0 with {self.name}: a marginal likelihood has no smoothed target. "
                f"Got {label_smoothing}."
            )
        asked = (batch.labels != UNSUPERVISED).any(dim=1)
        if not asked.any():  # of the control arm, which skips most queries
            return {self.name: LossTerm(total=0.0 * module.bias.sum(), count=0)}
        parts = self._scored(module, batch, asked)
        found = marginal_log_likelihood(**parts, level=self.level)
        self._report(module, parts, found)
        return {self.name: LossTerm(total=-found.sum(), count=batch.supervised_tokens)}

    def _scored(self, module: RetrievalModel, batch: Batch, asked: Tensor) -> dict[str, Tensor]:
        """The arguments of the marginal likelihood, of the queries that ask for something."""
        input_ids, labels = batch.input_ids[asked], batch.labels[asked]
        mask = None if batch.attention_mask is None else batch.attention_mask[asked]
        beside = {name: batch[name][asked].cpu().numpy() for name in ("gold", "draw", "excluded", "null_only")}
        excluded = [[id for id in row if id >= 0] for row in beside["excluded"].tolist()]
        gold, null_only = beside["gold"], beside["null_only"]
        choice: Candidates
        if self.fixed_negatives:
            choice = fixed_choice(module, input_ids, mask, self.fixed_negatives, gold, excluded, null_only)
        else:
            choice = module.choose(input_ids, mask, self.k, gold, beside["draw"], excluded, null_only)
        scores = module.logits(input_ids, mask, choice, frozen=False if self.fixed_negatives else None)
        logs, targets = module.log_likelihoods(input_ids, mask, labels, choice)
        there = torch.from_numpy(choice.there).to(scores.device)
        return {"scores": scores, "log_likelihoods": logs, "candidates": there, "tokens": targets}

    def _positions(
        self, tokens: np.ndarray, spans: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> np.ndarray:
        """Places to mask: one span, or without spans one token; of the controls as many others."""
        ordinary = np.flatnonzero(~vocabulary.is_special[tokens])
        if len(spans):
            start, end = spans[generator.integers(len(spans))]
            places = np.arange(start, end)[: self.max_predictions]
        else:
            places = generator.choice(ordinary, size=min(1, len(ordinary)), replace=False)
        if self.masking == "salient":
            return places
        if self.masking == "random-token":
            return generator.choice(ordinary, size=min(len(places), len(ordinary)), replace=False)
        first = int(generator.integers(max(len(ordinary) - len(places), 0) + 1))
        return ordinary[first : first + len(places)]

    def _report(self, module: RetrievalModel, parts: dict[str, Tensor], found: Tensor) -> None:
        """What the update was made of, for whoever records it: log p = reader term − retriever term."""
        if module.record is None or self.fixed_negatives:
            return
        with torch.no_grad():
            there, sums = parts["candidates"], torch.where(parts["tokens"][:, None], parts["log_likelihoods"], 0.0)
            read = there[:, :-1].any(dim=1)
            prior = parts["scores"].masked_fill(~there, float("-inf")).softmax(dim=1)
            posterior = document_posterior(**parts, level="sequence")
            logs = sums.sum(dim=2)
            expected = torch.where(there, posterior * logs, 0.0).sum(dim=1)
            utility = torch.where(there[:, :-1], logs[:, :-1] - logs[:, -1:], 0.0).sum(dim=1)
            sequence = marginal_log_likelihood(**parts, level="sequence")
            row: dict[str, Any] = {
                "queries": read.sum(),
                "reader term": expected[read].sum(),
                "retriever term": (expected - sequence)[read].sum(),
                "utility of a passage": (utility / there[:, :-1].sum(dim=1).clamp_min(1))[read].sum(),
                "utility of retrieval": (sequence - logs[:, -1])[read].sum(),
                "null prior": prior[read, -1].sum(),
            }
            module.record.append({name: float(value) for name, value in row.items()})


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedBook(RetrievalLM):
    """No passage: what weights alone hold."""

    name: ClassVar[str] = "closed-book"
    term_weights: ClassVar[dict[str, float]] = {"closed-book": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReadGold(RetrievalLM):
    """The passage that answers."""

    name: ClassVar[str] = "read-gold"
    term_weights: ClassVar[dict[str, float]] = {"read-gold": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRandom(RetrievalLM):
    """A passage that does not."""

    name: ClassVar[str] = "read-random"
    term_weights: ClassVar[dict[str, float]] = {"read-random": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieveBM25(RetrievalLM):
    """Passages that share rare words with the query."""

    name: ClassVar[str] = "retrieve-bm25"
    term_weights: ClassVar[dict[str, float]] = {"retrieve-bm25": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieveFrozen(RetrievalLM):
    """Passages of a retriever that only the inverse cloze task trained."""

    name: ClassVar[str] = "retrieve-frozen"
    term_weights: ClassVar[dict[str, float]] = {"retrieve-frozen": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieveLearned(RetrievalLM):
    """Passages of a retriever that learns from what the reader made of them: REALM."""

    name: ClassVar[str] = "retrieve-learned"
    term_weights: ClassVar[dict[str, float]] = {"retrieve-learned": 1.0}


SOURCES: dict[str, str] = {
    "closed-book": "none",
    "read-gold": "gold",
    "read-random": "random",
    "retrieve-bm25": "bm25",
    "retrieve-frozen": "frozen",
    "retrieve-learned": "learned",
}
"""Where the candidates of each arm come from."""


def retrieval_model(objective: RetrievalLM, reader: Any, library: Any = None, retriever: Any = None) -> RetrievalModel:
    """The model that an arm trains: the reader, bit for bit, and beside it what the arm needs.

    Args:
        objective: The arm.
        reader: `BertForMaskedLM`, taken as it is.
        library: What may be read; for every arm but `closed-book`.
        retriever: For `retrieve-frozen` and `retrieve-learned`; its parameters get `objective.retriever_rate`.

    Raises:
        UserError: The library or the retriever is missing, or there is one without use.
    """
    source: Any = SOURCES[objective.name]
    if library is None and source != "none":
        raise UserError(f"{objective.name} reads passages. Got no library.\nGive Library(passages, tokenizer).")
    model = RetrievalModel(reader, source, retriever)
    model.passage_library = library
    for parameter in retriever.parameters() if source == "learned" else ():
        parameter.rate_scale = objective.retriever_rate
    return model
