r"""Masked language modelling with retrieved passages: six readers that differ only in which passages they may read.

$$ -\log p(y \mid x) = -\log \sum_{z \in C(x) \cup \{\varnothing\}} \pi(z) \prod_j p(y_j \mid z, x) $$

The masked query depends only on its example. The candidates depend on the weights, so the loss chooses them, from the
library of the trained `RetrievalModel`.

| name              | candidates                       | trained with the reader   |
|-------------------|----------------------------------|---------------------------|
| `closed-book`     | none: the null passage alone     | –                         |
| `read-gold`       | the fact's passage, null         | b                         |
| `read-random`     | a random other passage, null     | b                         |
| `retrieve-bm25`   | k by BM25, null                  | a, b                      |
| `retrieve-frozen` | k by a fixed retriever, null     | a, b                      |
| `retrieve-learned`| k by a retriever, null           | the retriever             |

Source: [@guu2020realm].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Count, CountOrNone, Limits, Probability, UserError, read_setting
from infoflow.objectives._batch import (
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Field,
    LossTerm,
    Noise,
    Shown,
)
from infoflow.objectives._masking import mask_id
from infoflow.objectives._objective import AbstractObjective, Family

from ..models import Candidates, RetrievalModel, document_posterior, fixed_choice, marginal_log_likelihood

Masking = Literal["salient", "random-token", "random-span"]
Refresh = Annotated[int, Limits(at_least=-1, at_most=10**9, zero=False, like="from 1, or −1 for never")]


@dataclass(frozen=True, kw_only=True)
class RetrievalSettings:
    """Settings of a plan that all its readers share."""

    k: Count = 2  # passages per search; 7 in REALM
    null_share: Probability = 0.1  # share of queries that are read without a passage, the same for every reader
    refresh_every: Refresh = 50  # updates between two builds of the index; −1: built once
    freeze_retriever: Probability = 1 / 3  # share of the updates in which a learned retriever is frozen
    retriever_rate: Annotated[float, Limits(above=0, at_most=10)] = 0.2  # learning rate relative to the reader's


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalLM(RetrievalSettings, AbstractObjective):
    """Shared parts of the six retrieval objectives; see the table of this module."""

    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "fill in"
    uses_all_parameters: ClassVar[bool] = False  # a retriever is frozen at first, and unused in null readings
    fields: ClassVar[Mapping[str, Field]] = {
        **SENTENCE_FIELDS,
        "gold": Field(pad=-1),  # the passage with the answer; −1: none
        "excluded": Field(pad=-1),  # passages that may not be read
        "draw": Field(),  # seed for a random passage
        "null_only": Field(pad=False),  # whether the query is read without a passage
    }

    level: Literal["sequence", "token"] = "sequence"  # level of the marginalisation
    null_share_only: bool = False  # closed-book: train only on `null_share`, on as many null readings as others have
    masking: Masking = "salient"  # the other values are controls: as many masks at other positions
    max_predictions: Count = 10  # maximum number of masks per query
    lag: Annotated[int, Limits(at_least=0, at_most=10**9)] = 0  # age of the index's weights, in updates
    # For the loss change allocation: if above 0, candidates are the right passage and this many others by BM25, which
    # do not depend on weights, and the retriever is not frozen.
    fixed_negatives: CountOrNone = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        read_setting(Refresh, self.refresh_every, "refresh_every")
        if self.refresh_every > 0 and self.lag >= self.refresh_every:
            raise UserError(
                f"lag must be below refresh_every. Got {self.lag} and {self.refresh_every}.\n"
                "Refresh less often, or with a smaller lag."
            )

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Mask one span; random draws have the same order for every reader."""
        tokens = example.text
        if "spans" not in example.labels:
            raise UserError(
                f"{self.name} reads queries with their spans and passages. Got a plain sentence.\n"
                "Make them with infoflow.subjects.retrieval.training.query_rows or fact_query_rows."
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
        facts = {"gold": example.labels["gold"], "excluded": example.labels["excluded"]}
        facts |= {"draw": np.array(draw), "null_only": np.array(null_only)}
        return Corrupted(arrays={"input_ids": inputs, "labels": labels, **facts}, selected=selected)

    def for_evaluation(self) -> AbstractObjective:
        """Every query is read with its candidates."""
        return replace(self, null_share=1.0 if self.null_share_only else 0.0)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The reader, a plain masked LM; the retriever is saved separately."""
        return module.reader if isinstance(module, RetrievalModel) else module

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """−log p(y|x) of the queries per masked token."""
        if not isinstance(module, RetrievalModel):
            raise UserError(
                f"{self.name} trains a RetrievalModel. Got a {type(module).__name__}.\n"
                "Put the reader into one: infoflow.subjects.retrieval.objectives.retrieval_model."
            )
        if label_smoothing:
            raise UserError(
                f"training.label_smoothing must be 0 with {self.name}, since a marginal likelihood has no smoothed "
                f"target. Got {label_smoothing}."
            )
        has_answer = (batch.labels != UNSUPERVISED).any(dim=1)
        if not has_answer.any():  # happens in the control, which skips most queries
            return {self.name: LossTerm(total=0.0 * module.bias.sum(), count=0)}
        parts = self._scored(module, batch, has_answer)
        found = marginal_log_likelihood(**parts, level=self.level)
        self._report(module, parts, found)
        return {self.name: LossTerm(total=-found.sum(), count=batch.supervised_tokens)}

    def example(
        self, sentences: Sequence[np.ndarray], vocabulary: Vocabulary, translation: np.ndarray | None = None
    ) -> Example:
        """A query without marked spans or known passages, in which one token is masked."""
        nothing = {"spans": np.zeros((0, 2), dtype=np.int64), "gold": np.array(-1), "excluded": np.array([-1])}
        return replace(AbstractObjective.example(self, sentences, vocabulary), labels=nothing)

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The inputs and targets, and the passages that may be read."""
        plain = AbstractObjective.shown(self, batch, names, target_names)
        return replace(plain, inputs={**plain.inputs, "passages": [_PASSAGES[SOURCES[self.name]]]})

    def choice(self, module: RetrievalModel, batch: Batch, has_answer: Tensor | slice = slice(None)) -> Candidates:
        """The candidates of a batch's queries, or of some of them."""
        ids = batch.input_ids[has_answer]
        mask = None if batch.attention_mask is None else batch.attention_mask[has_answer]
        names = ("gold", "draw", "excluded", "null_only")
        gold, draws, excluded, null_only = (batch[name][has_answer].cpu().numpy() for name in names)
        exclude = [[id for id in row if id >= 0] for row in excluded.tolist()]
        if self.fixed_negatives:
            return fixed_choice(module, ids, mask, self.fixed_negatives, gold, exclude, null_only)
        return module.choose(ids, mask, self.k, gold, draws, exclude, null_only)

    def _scored(self, module: RetrievalModel, batch: Batch, has_answer: Tensor) -> dict[str, Tensor]:
        """The arguments of the marginal likelihood, for the queries with a target."""
        input_ids, labels = batch.input_ids[has_answer], batch.labels[has_answer]
        mask = None if batch.attention_mask is None else batch.attention_mask[has_answer]
        choice = self.choice(module, batch, has_answer)
        scores = module.logits(input_ids, mask, choice, frozen=False if self.fixed_negatives else None)
        logs, targets = module.log_likelihoods(input_ids, mask, labels, choice)
        there = torch.from_numpy(choice.there).to(scores.device)
        return {"scores": scores, "log_likelihoods": logs, "candidates": there, "tokens": targets}

    def _positions(
        self, tokens: np.ndarray, spans: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> np.ndarray:
        """Positions to mask: one span, or one token if there are no spans; for the controls, as many random ones."""
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
        """Record the components of the loss: log p = reader term − retriever term."""
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
    """No passage: knowledge in weights alone."""

    name: ClassVar[str] = "closed-book"
    term_weights: ClassVar[dict[str, float]] = {"closed-book": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReadGold(RetrievalLM):
    """The passage with the answer."""

    name: ClassVar[str] = "read-gold"
    term_weights: ClassVar[dict[str, float]] = {"read-gold": 1.0}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRandom(RetrievalLM):
    """A passage without the answer."""

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
    """Passages of a retriever that learns from the reader's loss: REALM."""

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
"""Objective → source of its candidates."""
_PASSAGES = {
    "none": "none",
    "gold": "the one with the answer",
    "random": "one without the answer",
    "bm25": "those that share rare words with it",
    "frozen": "those that a fixed retriever finds",
    "learned": "those that its own retriever finds",
}


def retrieval_model(objective: RetrievalLM, reader: Any, library: Any = None, retriever: Any = None) -> RetrievalModel:
    """The model that an objective trains, which is `reader` with the objective's other parts.

    Every objective except `closed-book` needs a `library`; `retrieve-frozen` and `retrieve-learned` also need a
    `retriever`, whose learning rate is scaled by `retriever_rate`. A UserError names what is missing or unused.
    """
    source: Any = SOURCES[objective.name]
    if library is None and source != "none":
        raise UserError(f"{objective.name} reads passages. Got no library.\nGive Library(passages, tokenizer).")
    model = RetrievalModel(reader, source, retriever)
    model.passage_library = library
    for parameter in retriever.parameters() if source == "learned" else ():
        parameter.rate_scale = objective.retriever_rate
    return model
