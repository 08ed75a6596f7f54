"""A dense retriever of queries and passages as vectors, its loss, and the salient spans that queries mask."""

import math
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import Numbers

# A dense retriever: queries and passages as vectors, with their inner product as score.

Pooling = Literal["mean", "first"]


class RetrieverConfig(BertConfig):
    """The encoder's configuration and the pooling of its last states."""

    model_type = "infoflow-retriever"
    vector_width: int = 64
    pooling: str = "mean"  # mean over the text's tokens, or "first": the state of the first token
    shared: bool = True  # one encoder for both, as in REALM; otherwise two with equal initial weights, as in DPR


class Tower(nn.Module):
    """An encoder, pooling, a linear map and LayerNorm."""

    def __init__(self, config: RetrieverConfig) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.projection = nn.Linear(config.hidden_size, config.vector_width)
        self.norm = nn.LayerNorm(config.vector_width, eps=config.layer_norm_eps)

    def forward(
        self,
        input_ids: Int[Tensor, "text token"],
        attention_mask: Int[Tensor, "text token"] | None = None,
        token_type_ids: Int[Tensor, "text token"] | None = None,
    ) -> Float[Tensor, "text width"]:
        """One vector per text."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        states = self.encoder(**inputs).last_hidden_state
        if self.pooling == "first":
            pooled = states[:, 0]
        else:
            real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            weights = real.to(states.dtype)[:, :, None]
            pooled = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return self.norm(self.projection(pooled))


@final
class Retriever(PreTrainedModel):
    r"""Two encoders with equal initialisation, or one for both; \(f(x, z) = E_q(x) \cdot E_p(z) / \sqrt{d}\).

    LayerNorm bounds the score by \(\sqrt{d}\) while its gain is 1: 8 for 64 dimensions.
    """

    config_class = RetrieverConfig
    base_model_prefix = "queries"
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: RetrieverConfig) -> None:
        super().__init__(config)
        if config.pooling not in ("mean", "first"):
            raise UserError(f'pooling must be "mean" or "first". Got {config.pooling!r}.')
        self.queries = Tower(config)
        self.own_passages = None if config.shared else Tower(config)
        self.post_init()

    @property
    def passages(self) -> Tower:
        """The passage tower."""
        return self.queries if self.own_passages is None else self.own_passages

    def copy_to_passages(self) -> None:
        """Copy the query encoder's weights to the passage encoder."""
        if self.own_passages is not None:
            self.own_passages.load_state_dict(self.queries.state_dict())

    def scores(
        self, queries: Float[Tensor, "query width"], passages: Float[Tensor, "passage width"]
    ) -> Float[Tensor, "query passage"]:
        """Scores of every query with every passage."""
        return queries @ passages.T / math.sqrt(queries.shape[-1])


def build_retriever(config: RetrieverConfig, seed: int = 0) -> Retriever:
    """A retriever with random weights that depend only on (config, seed); two separate encoders begin equal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        retriever = Retriever(config)
    retriever.copy_to_passages()
    return retriever


def tower_copy(tower: Tower) -> Tower:
    """A frozen copy."""
    return deepcopy(tower).requires_grad_(False).eval()


def retriever_config(reader: Any, **changes: Any) -> RetrieverConfig:
    """The default configuration for a reader's `BertConfig`: two layers of its width and no dropout, updated by
    `changes`.
    """
    shape = {name: value for name, value in reader.to_diff_dict().items() if name not in _ABOUT}
    small = {"num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return RetrieverConfig(**{**shape, **small, **changes})


_ABOUT = ("architectures", "dtype", "model_type", "transformers_version", "is_decoder", "add_cross_attention")

AutoConfig.register(RetrieverConfig.model_type, RetrieverConfig)
AutoModel.register(RetrieverConfig, Retriever)


# The loss of a retriever: a query's passage against all passages of the batch.


def in_batch_loss(
    scores: Numbers, positives: Numbers | None = None, ignore: Numbers | None = None
) -> Float[Tensor, ""]:
    r"""Mean over queries of \(-\log \mathrm{softmax}(S_i)_{\mathrm{pos}(i)}\), in nats ([@karpukhin2020dense]).

    `scores` are (query, passage): one passage for each query, then hard negatives; `positives` (query,) names each
    query's passage, by default i for query i. Passages in `ignore`, bool (query, passage), answer a query but are not
    its own (duplicates, other passages with the answer), so they are left out of its softmax.
    """
    scores_QP = torch.as_tensor(scores)
    if scores_QP.ndim != 2 or 0 in scores_QP.shape:
        raise UserError(f"scores must be (query, passage), not empty. Got {tuple(scores_QP.shape)}.")
    num_queries, num_passages = scores_QP.shape
    own_Q = _positives(positives, num_queries, num_passages, scores_QP.device)
    if ignore is not None:
        ignore_QP = torch.as_tensor(ignore, device=scores_QP.device)
        if ignore_QP.dtype != torch.bool or ignore_QP.shape != scores_QP.shape:
            raise UserError(
                f"ignore must be bool of shape {tuple(scores_QP.shape)}. Got {ignore_QP.dtype} of "
                f"{tuple(ignore_QP.shape)}."
            )
        if ignore_QP.gather(1, own_Q[:, None]).any():
            raise UserError("ignore must not hold a query's own passage. Got one.\nMask only false negatives.")
        scores_QP = scores_QP.masked_fill(ignore_QP, float("-inf"))
    return F.cross_entropy(scores_QP, own_Q)


def _positives(given: Any, num_queries: int, num_passages: int, device: torch.device) -> Tensor:
    own = torch.arange(num_queries, device=device) if given is None else torch.as_tensor(given, device=device).long()
    if tuple(own.shape) != (num_queries,) or int(own.min()) < 0 or int(own.max()) >= num_passages:
        raise UserError(
            f"positives must name one of {num_passages} passages for each of {num_queries} queries. "
            f"Got {tuple(own.shape)}, the highest {int(own.max()) if own.numel() else 'none'}."
        )
    return own


# Salient spans: the parts of a sentence that state facts, by annotation or by rule.

OBJECT = "object"  # the role of the object's words in a fact's sentence

_DATE = re.compile(
    r"(january|february|march|april|may|june|july|august|september|october|november|december|\d{1,2}|1\d{3}|20\d{2})",
    re.IGNORECASE,
)
_YEAR = re.compile(r"1\d{3}|20\d{2}")


def salient_spans(words: Sequence[str], tags: Sequence[str] | None = None) -> list[tuple[int, int]]:
    """First word and end of each salient span.

    With tags: runs of words tagged `object` if there are any, else runs of one tag. Without tags, by rule: dates (a run
    of months, days and years with a year in it), and runs of capitalised words that do not begin the sentence.
    """
    if tags is not None:
        wanted = [tag if OBJECT not in tags or tag == OBJECT else "" for tag in tags]
        return _runs(wanted)
    dates = [
        (start, end)
        for start, end in _runs(["date" if _DATE.fullmatch(word) else "" for word in words])
        if any(_YEAR.fullmatch(word) for word in words[start:end])
    ]
    inside = {index for start, end in dates for index in range(start, end)}
    names = ["name" if index and index not in inside and word[:1].isupper() else "" for index, word in enumerate(words)]
    return sorted([*dates, *_runs(names)])


def _runs(tags: Sequence[str]) -> list[tuple[int, int]]:
    """Runs of equal, non-empty tags."""
    runs: list[tuple[int, int]] = []
    for index, tag in enumerate(tags):
        if tag and index and tags[index - 1] == tag:
            runs[-1] = (runs[-1][0], index + 1)
        elif tag:
            runs.append((index, index + 1))
    return runs
