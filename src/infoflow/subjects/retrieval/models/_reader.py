"""`RetrievalModel`: a reader that reads a query with each of its candidates, and the parts that weight them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, EncoderDecoderModel, PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import evaluating, pad_rows

from ._library import NULL, Library, without_excluded
from ._reading import UNSUPERVISED, Reading, Targets, num_positions, reading_of
from ._retriever import Retriever

Source = Literal["none", "gold", "random", "bm25", "frozen", "learned"]
"""Source of candidates; only "learned" has trained scores."""

_NULL_LOGIT = -2.0
"""Initial logit of the null passage. With 0, it would take half of the early gradient, and .19 after 2,000 updates."""


_ONE_MORE = ((0, 0), (0, 1))  # one column after the last


class Candidates(NamedTuple):
    """The candidates of a batch of queries; the last one is the null passage."""

    ids: np.ndarray  # int64 (query, candidate)
    there: np.ndarray  # bool (query, candidate)
    scores: np.ndarray  # float (query, candidate): scores from the source, 0 if it has none

    @classmethod
    def of(cls, ids: np.ndarray, scores: np.ndarray, null_only: np.ndarray) -> "Candidates":
        """Found passages with their scores (query, passage), and the null passage; −1 marks a missing passage.

        Queries in `null_only`, bool (query,), read none of the others.
        """
        there = (ids != NULL) & ~null_only[:, None]
        return cls(
            ids=np.pad(np.where(there, ids, NULL), _ONE_MORE, constant_values=NULL),
            there=np.pad(there, _ONE_MORE, constant_values=True),
            scores=np.pad(np.where(there, scores, 0.0), _ONE_MORE),
        )


@final
class RetrievalModel(PreTrainedModel):
    """A reader with a retriever (if its source of candidates needs one), the scale a and the null logit b.

    A candidate from a source without a learned score has the logit \\(\\exp(a) \\, s(x, z)\\); the null passage has the
    logit b. A learned retriever scores the null passage like any other passage, with empty title and text.
    """

    config_class = BertConfig
    base_model_prefix = "reader"
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(
        self, reader: BertForMaskedLM | EncoderDecoderModel, source: Source, retriever: Retriever | None = None
    ) -> None:
        """
        Args:
            reader: Used as it is; its weights are not copied.
            source: Source of candidates.
            retriever: For `"frozen"` and `"learned"`.

        Raises:
            UserError: A retriever is missing or unused.
        """
        super().__init__(reader.config)
        if (retriever is not None) != (source in ("frozen", "learned")):
            raise UserError(
                "The sources frozen and learned need a retriever, and the others must not have one. Got source = "
                f"{source} {'with' if retriever is not None else 'without'} one."
            )
        self.reader, self.source = reader, source
        self.retriever = retriever.requires_grad_(source == "learned") if retriever is not None else None
        if source in ("bm25", "frozen"):
            self.scale = nn.Parameter(torch.zeros(()))
        if source not in ("none", "learned"):
            self.null_logit = nn.Parameter(torch.tensor(_NULL_LOGIT))
        self.passage_library: Library | None = None
        self.retriever_frozen = False
        """Whether scores currently carry no gradient, so that the retriever does not change."""
        self.record: list[dict[str, float]] | None = None
        """List to which the loss appends its components; None: nothing is recorded."""

    @property
    def _reading(self) -> Reading:
        return reading_of(self.reader)

    @property
    def positions(self) -> int:
        """Number of the reader's positions."""
        return num_positions(self.config)

    @property
    def writes(self) -> bool:
        """Whether the reader generates its answers instead of filling masks."""
        return isinstance(self.reader, EncoderDecoderModel)

    @property
    def bias(self) -> Tensor:
        """A parameter that affects every answer."""
        return self._reading.bias

    # -- candidates ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def choose(
        self,
        input_ids: Int[Tensor, "query token"],
        attention_mask: Int[Tensor, "query token"] | None,
        k: int,
        gold: np.ndarray,
        draws: np.ndarray,
        exclude: Sequence[Sequence[int]] | None = None,
        null_only: np.ndarray | None = None,
    ) -> Candidates:
        """The candidates of each query, selected without gradient.

        Args:
            input_ids: `[CLS] x [SEP]`, masked.
            attention_mask: 0 at padding.
            k: Passages per query, for sources that search.
            gold: int64 (query,), the passage with the answer; −1: none. Ignored if excluded.
            draws: int64 (query,), seeds for random passages.
            exclude: Ids to exclude for each query; default: none.
            null_only: Bool (query,), whether the query reads only the null passage; default: no.
        """
        num = len(input_ids)
        exclude = [()] * num if exclude is None else exclude
        null_only = np.zeros(num, dtype=bool) if null_only is None else null_only
        ids, scores = np.empty((num, 0), dtype=np.int64), np.empty((num, 0))
        if self.source == "gold":
            ids = without_excluded(gold, exclude)[:, None]
        elif self.source == "random":
            ids = self.drawn(draws, gold, exclude)[:, None]
        elif self.source != "none" and not null_only.all():
            ids, scores = self._searched(input_ids, attention_mask, k, exclude)
        if scores.shape != ids.shape:
            scores = np.zeros(ids.shape)
        return Candidates.of(ids, scores, null_only)

    def drawn(self, draws: np.ndarray, gold: np.ndarray, exclude: Sequence[Sequence[int]] | None = None) -> np.ndarray:
        """A random passage for each query among those that neither answer it nor are excluded; −1 if there is none."""
        num, found = len(needed_library(self)), np.full(len(gold), NULL, dtype=np.int64)
        excluded = exclude if exclude is not None else [()] * len(gold)
        for row, (draw, right, out) in enumerate(zip(draws.tolist(), gold.tolist(), excluded, strict=True)):
            left_out = sorted({int(id) for id in (right, *out) if id != NULL})
            if len(left_out) < num:
                place = draw % (num - len(left_out))
                for id in left_out:
                    place += place >= id
                found[row] = place
        return found

    def _searched(
        self, input_ids: Tensor, attention_mask: Tensor | None, k: int, exclude: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        library = needed_library(self)
        if self.source == "bm25":
            found = library.by_words(library.words(input_ids), k, exclude)
        else:
            assert self.retriever is not None
            if library.dense is None:
                library.dense = library.embed(self.retriever.passages)
            with evaluating(self.retriever), torch.autocast(input_ids.device.type, enabled=False):
                vectors = self.retriever.queries(input_ids, attention_mask)
            found = library.by_vectors(vectors, k, exclude)
            found = found._replace(scores=found.scores / vectors.shape[-1] ** 0.5)
        return found.ids, found.scores

    # -- scores and likelihoods ---------------------------------------------------------------------------------------

    def logits(
        self,
        input_ids: Int[Tensor, "query token"],
        attention_mask: Int[Tensor, "query token"] | None,
        choice: Candidates,
        frozen: bool | None = None,
    ) -> Float[Tensor, "query candidate"]:
        """f(x, z) of each candidate with the current weights, differentiable; undefined for masked candidates.

        `frozen` says whether a retriever gets no gradient; None means the current `retriever_frozen`.
        """
        device = input_ids.device
        frozen = self.retriever_frozen if frozen is None else frozen
        if self.source == "learned" and choice.there[:, :-1].any():
            with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
                return self._learned(input_ids, attention_mask, choice)
        dtype = next(self.reader.parameters()).dtype
        scores = torch.from_numpy(choice.scores).to(device, dtype)
        if self.source in ("bm25", "frozen"):
            scores = self.scale.exp() * scores
        if self.source in ("none", "learned"):
            return scores
        return torch.cat([scores[:, :-1], self.null_logit.to(dtype).expand(len(scores), 1)], dim=1)

    def _learned(self, input_ids: Tensor, attention_mask: Tensor | None, choice: Candidates) -> Tensor:
        assert self.retriever is not None
        queries = self.retriever.queries(input_ids, attention_mask)
        distinct, places = np.unique(choice.ids, return_inverse=True)
        vectors = needed_library(self).vectors(self.retriever.passages, distinct.tolist())
        chosen = vectors[torch.from_numpy(places.reshape(choice.ids.shape)).to(vectors.device)]
        return (queries[:, None] * chosen).sum(dim=-1) / queries.shape[-1] ** 0.5

    def log_likelihoods(
        self,
        input_ids: Int[Tensor, "query token"],
        attention_mask: Int[Tensor, "query token"] | None,
        labels: Int[Tensor, "query token"],
        choice: Candidates,
    ) -> tuple[Float[Tensor, "query candidate target"], Bool[Tensor, "query target"]]:
        r"""\(\log p(y_j \mid z, x)\) of each masked token with each candidate, and the mask of targets.

        The reader sees `[CLS] x [SEP] z [SEP]`, segments 0 and 1; only existing candidates are read.
        """
        predicted, index, targets = self._predicted(input_ids, attention_mask, labels, choice)
        query, _, rank = index
        values = predicted.gather(1, targets.ids[query, rank][:, None])[:, 0]
        return values.new_zeros(*choice.ids.shape, targets.ids.shape[1]).index_put(index, values), targets.there

    def word_log_probabilities(
        self,
        input_ids: Int[Tensor, "query token"],
        attention_mask: Int[Tensor, "query token"] | None,
        labels: Int[Tensor, "query token"],
        choice: Candidates,
    ) -> Float[Tensor, "query candidate target word"]:
        """Log-probabilities of all words at each masked token, with each candidate; 0 where there is no candidate."""
        predicted, index, targets = self._predicted(input_ids, attention_mask, labels, choice)
        shape = (*choice.ids.shape, targets.ids.shape[1], predicted.shape[1])
        return predicted.new_zeros(shape).index_put(index, predicted)

    def _predicted(
        self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor, choice: Candidates
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor], Targets]:
        """Log-probabilities of all words at each target of each pair, their indices (query, candidate, target), and
        the targets.
        """
        lengths = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).sum(dim=1).tolist()
        queries = [row[:length] for row, length in zip(input_ids.cpu().numpy(), lengths, strict=True)]
        empty = choice.there & (choice.ids == NULL)
        # Queries with the empty passage run in a separate pass, since next to passages they would be mostly padding.
        passes = [np.argwhere(of) for of in (choice.there & ~empty, empty) if of.any()]
        chosen, targets = labels != UNSUPERVISED, self._reading.targets(labels)
        parts = [self._read(queries, pairs, choice.ids, chosen, targets) for pairs in passes]
        predicted, query, candidate, rank = (torch.cat(column) for column in zip(*parts, strict=True))
        return predicted, (query, candidate, rank), targets

    def _read(
        self, queries: list[np.ndarray], pairs: np.ndarray, ids: np.ndarray, chosen: Tensor, targets: Targets
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For each target of these pairs: log-probabilities of all words, and its query, candidate and number."""
        inputs = [tensor.to(chosen.device) for tensor in self._pairs(queries, pairs, ids)]
        names = ("input_ids", "attention_mask", "token_type_ids")
        query, candidate = (torch.from_numpy(column.copy()).to(chosen.device) for column in pairs.T)
        of_pairs = Targets(targets.ids[query], targets.there[query])
        predicted, pair, rank = self._reading.predicted(dict(zip(names, inputs, strict=True)), chosen[query], of_pairs)
        return predicted, query[pair], candidate[pair], rank

    def _pairs(self, queries: list[np.ndarray], pairs: np.ndarray, ids: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, padding mask and segments of each (query, candidate) that is read."""
        limit, rows, segments = self.positions, [], []
        for query, candidate in pairs:
            x = queries[query]
            if len(x) >= limit:  # another [SEP] follows
                raise UserError(
                    f"A query and its special tokens must fit the reader's {limit} positions, followed by [SEP]. "
                    f"Got a query of {len(x)} tokens.\nUse queries of max_length = {limit - 1} or fewer."
                )
            id = int(ids[query, candidate])
            body = needed_library(self).body_within(id, limit - len(x) - 1) if id != NULL else x[:0]
            rows.append(np.concatenate([x, body, x[-1:]]))  # the query's own [SEP] also closes the passage
            segments.append(np.repeat([0, 1], [len(x), len(body) + 1]))
        tokens, real = pad_rows(rows, int(self.config.pad_token_id or 0))
        return tokens, real, pad_rows(segments, 0)[0]


def needed_library(model: RetrievalModel) -> Library:
    """The model's library; a `UserError` if it has none."""
    if model.passage_library is None:
        raise UserError(
            f"A model whose passages come from {model.source} needs a library. Got none.\n"
            "Set model.passage_library = Library(passages, tokenizer) before training or scoring."
        )
    return model.passage_library
