"""How a reader answers with each passage, and the likelihood marginalised over passages."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import EncoderDecoderModel, PreTrainedConfig, PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import Numbers

# How a reader answers: its target tokens, and their log-probabilities with each passage.
#
# | reading          | reader                         | targets \(y\) of a query    | \(p(y_j \mid z, x)\)         |
# |------------------|--------------------------------|-----------------------------|------------------------------|
# | `MaskedReading`  | `BertForMaskedLM` (REALM)      | the masked words            | at mask j, all masked        |
# | `WrittenReading` | an `EncoderDecoderModel` (RAG) | the same and an end token   | \(p(y_j \mid z, x, y_{<j})\) |
#
# Both read `[CLS] x [SEP] z [SEP]`, segments 0 and 1, with the same masks, so the query shows the answer's length.
#
# Sources: [@guu2020realm], [@lewis2020rag]; RAG's own reader is BART, whose question has no mask.

UNSUPERVISED = -100  # as in `objectives`, which this package must not import


class Targets(NamedTuple):
    """Targets of queries, in the order of their masks."""

    ids: Int[Tensor, "query target"]
    there: Bool[Tensor, "query target"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class MaskedReading:
    """A masked LM that fills all masks at once."""

    reader: Any

    @property
    def bias(self) -> Tensor:
        """A parameter that affects every answer."""
        return self.reader.cls.predictions.bias

    def targets(self, labels: Int[Tensor, "query token"]) -> Targets:
        """The answers of queries, whose labels are −100 where there is no target."""
        return _in_order(labels)

    def predicted(
        self, inputs: dict[str, Tensor], chosen: Bool[Tensor, "pair token"], targets: Targets
    ) -> tuple[Float[Tensor, "answer word"], Int[Tensor, " answer"], Int[Tensor, " answer"]]:
        """Log-probabilities of all words at every target of every pair, with the indices of pair and target.

        `chosen` marks the masks; `targets` are those of the same pairs.
        """
        states = self.reader.bert(**inputs).last_hidden_state
        pair, place = chosen.nonzero(as_tuple=True)
        rank = (chosen.cumsum(dim=1) - 1)[pair, place]
        return _log_probabilities(self.reader.cls(states[pair, place])), pair, rank


@final
@dataclass(frozen=True, slots=True, eq=False)
class WrittenReading:
    """A decoder that generates the masked words one after the other, then an end token."""

    reader: Any

    @property
    def bias(self) -> Tensor:
        return self.reader.decoder.cls.predictions.bias

    def targets(self, labels: Tensor) -> Targets:
        """The masked words, with an end after the last one."""
        words = _in_order(labels)
        num = words.there.sum(dim=1)
        ids = torch.nn.functional.pad(words.ids, (0, 1))
        ids[torch.arange(len(ids), device=ids.device), num] = int(self.reader.config.eos_token_id)
        there = torch.arange(ids.shape[1], device=ids.device) <= num[:, None]
        return Targets(ids, there & (num > 0)[:, None])

    def predicted(self, inputs: dict[str, Tensor], chosen: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        states = self.reader.encoder(**inputs).last_hidden_state
        pair, rank = targets.there.nonzero(as_tuple=True)
        return written(self.reader, states, inputs["attention_mask"], targets.ids)[pair, rank], pair, rank


Reading = MaskedReading | WrittenReading


def reading_of(reader: PreTrainedModel) -> Reading:
    return WrittenReading(reader) if isinstance(reader, EncoderDecoderModel) else MaskedReading(reader)


def num_positions(config: PreTrainedConfig) -> int:
    """Number of positions of a reader with this configuration; for an encoder-decoder, of its encoder."""
    return int(getattr(config, "encoder", config).max_position_embeddings)


def written(
    reader: Any,
    states: Float[Tensor, "row token width"],
    attention_mask: Int[Tensor, "row token"] | None,
    answers: Int[Tensor, "row target"],
) -> Float[Tensor, "row target word"]:
    r"""\(\log p(\cdot \mid x, y_{<j})\) of an encoder-decoder before each token of `answers`, from the encoder's
    `states`.
    """
    start = answers.new_full((len(answers), 1), int(reader.config.decoder_start_token_id))
    logits = reader.decoder(
        input_ids=torch.cat([start, answers[:, :-1]], dim=1),
        encoder_hidden_states=states,
        encoder_attention_mask=attention_mask,
        use_cache=False,
    ).logits
    return _log_probabilities(logits)


def _in_order(labels: Tensor) -> Targets:
    chosen = labels != UNSUPERVISED
    rank = chosen.cumsum(dim=1) - 1  # index of a masked token among its query's targets
    num = chosen.sum(dim=1, keepdim=True)
    query, place = chosen.nonzero(as_tuple=True)
    shape = (len(labels), max(int(num.max()), 1))
    ids = labels.new_zeros(shape).index_put((query, rank[query, place]), labels[query, place])
    return Targets(ids, torch.arange(shape[1], device=labels.device) < num)


def _log_probabilities(logits: Tensor) -> Tensor:
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(dim=-1)


# The likelihood of an answer marginalised over passages, its posterior over passages, and the utility of a passage.
#
# Q queries, C candidates, J target tokens. With the prior \(\pi = \mathrm{softmax}_{z} f(x, z)\) over a query's
# candidates,
#
# | level    | \(\log p(y \mid x)\)                                     |
# |----------|----------------------------------------------------------|
# | sequence | \(\log \sum_z \pi(z) \prod_j p(y_j \mid z, x)\)          |
# | token    | \(\sum_j \log \sum_z \pi(z) \, p(y_j \mid z, x)\)        |
#
# The two are equal for one token; otherwise neither bounds the other. REALM's paper and RAG-Sequence use the sequence
# level, REALM's released code and RAG-Token the token level ([@guu2020realm], [@lewis2020rag]).

Level = Literal["sequence", "token"]
_NOTHING = float("-inf")


def marginal_log_likelihood(
    scores: Numbers,
    log_likelihoods: Numbers,
    level: Level = "sequence",
    candidates: Numbers | None = None,
    tokens: Numbers | None = None,
) -> Float[Tensor, " query"]:
    r"""\(\log p(y \mid x)\) of each query, in nats; differentiable in both arguments.

    The gradient with respect to a score is \(\rho(z) - \pi(z)\) at the sequence level, with the posterior \(\rho\) of
    `document_posterior`; that with respect to a log-likelihood is \(\rho(z)\).

    Args:
        scores: (query, candidate), from the retriever.
        log_likelihoods: (query, candidate, token), \(\log p(y_j \mid z, x)\).
        level: Level of the marginalisation, see above.
        candidates: Bool (query, candidate), True for existing ones; default: all. Other arguments may have any value at
            masked entries, even NaN; these get a gradient of 0.
        tokens: Bool (query, token), True for targets; default: all.

    Raises:
        UserError: Shapes disagree, the level is unknown, or a query has no candidate.

    >>> scores, likelihoods = torch.tensor([[1.2, 0.3, -0.5]]), torch.tensor([[[0.9, 0.4], [0.1, 0.8], [0.2, 0.3]]])
    >>> marginal_log_likelihood(scores, likelihoods.log())
    tensor([-1.3709])
    """
    parts = _parts(scores, log_likelihoods, candidates, tokens, level)
    if level == "sequence":
        return (parts.log_prior_QC + parts.likelihoods_QCJ.sum(dim=2)).logsumexp(dim=1)
    per_token_QJ = (parts.log_prior_QC[:, :, None] + parts.likelihoods_QCJ).logsumexp(dim=1)
    return torch.where(parts.tokens_QJ, per_token_QJ, 0.0).sum(dim=1)


def document_posterior(
    scores: Numbers,
    log_likelihoods: Numbers,
    level: Level = "sequence",
    candidates: Numbers | None = None,
    tokens: Numbers | None = None,
) -> Float[Tensor, "query candidate"]:
    r"""\(p(z \mid x, y)\) of each candidate; at the token level, the mean over tokens of \(p(z \mid x, y_j)\).

    Arguments and errors are those of `marginal_log_likelihood`. Masked candidates get 0.
    """
    parts = _parts(scores, log_likelihoods, candidates, tokens, level)
    if level == "sequence":
        return (parts.log_prior_QC + parts.likelihoods_QCJ.sum(dim=2)).softmax(dim=1)
    per_token_QCJ = (parts.log_prior_QC[:, :, None] + parts.likelihoods_QCJ).softmax(dim=1)
    counted = parts.tokens_QJ[:, None]
    return torch.where(counted, per_token_QCJ, 0.0).sum(dim=2) / counted.sum(dim=2)


class _Parts(NamedTuple):
    log_prior_QC: Tensor  # −inf at masked candidates
    likelihoods_QCJ: Tensor  # 0 at masked candidates and tokens
    tokens_QJ: Tensor  # bool


def _parts(scores: Any, log_likelihoods: Any, candidates: Any, tokens: Any, level: str) -> _Parts:
    if level not in ("sequence", "token"):
        raise UserError(f'level must be "sequence" or "token". Got {level!r}.')
    scores_QC, likelihoods_QCJ = torch.as_tensor(scores), torch.as_tensor(log_likelihoods)
    if likelihoods_QCJ.ndim != 3 or scores_QC.shape != likelihoods_QCJ.shape[:2]:
        raise UserError(
            "log_likelihoods must be (query, candidate, token), and scores (query, candidate) of the same. Got "
            f"{tuple(likelihoods_QCJ.shape)} and {tuple(scores_QC.shape)}."
        )
    num_queries, num_candidates, num_tokens = likelihoods_QCJ.shape
    there_QC = _mask(candidates, (num_queries, num_candidates), "candidates", scores_QC)
    tokens_QJ = _mask(tokens, (num_queries, num_tokens), "tokens", scores_QC)
    if not there_QC.any(dim=1).all():
        raise UserError(
            "Every query needs a candidate. Got a query whose candidates are all masked.\n"
            "Always include the null passage."
        )
    # `where` instead of a product: masked entries may be NaN, and their gradient must be 0.
    log_prior_QC = torch.where(there_QC, scores_QC, _NOTHING).log_softmax(dim=1)
    counted_QCJ = there_QC[:, :, None] & tokens_QJ[:, None]
    return _Parts(log_prior_QC, torch.where(counted_QCJ, likelihoods_QCJ, 0.0), tokens_QJ)


def _mask(given: Any, shape: tuple[int, int], name: str, like: Tensor) -> Bool[Tensor, "query _"]:
    if given is None:
        return torch.ones(shape, dtype=torch.bool, device=like.device)
    mask = torch.as_tensor(given, device=like.device)
    if mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise UserError(f"{name} must be bool of shape {shape}. Got {mask.dtype} of {tuple(mask.shape)}.")
    return mask
