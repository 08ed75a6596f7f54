r"""How a reader answers: its target tokens, and their log-probabilities with each passage.

| reading          | reader                         | targets \(y\) of a query    | \(p(y_j \mid z, x)\)         |
|------------------|--------------------------------|-----------------------------|------------------------------|
| `MaskedReading`  | `BertForMaskedLM` (REALM)      | the words behind its masks  | at mask j, all hidden        |
| `WrittenReading` | an `EncoderDecoderModel` (RAG) | the same words, and an end  | \(p(y_j \mid z, x, y_{<j})\) |

Both read `[CLS] x [SEP] z [SEP]`, segments 0 and 1, with the same masks: the query shows the length of the answer.

Sources: [@guu2020realm], [@lewis2020rag]; RAG's own reader is BART, whose question has no mask.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import EncoderDecoderModel, PreTrainedConfig, PreTrainedModel

_UNSUPERVISED = -100  # as in `objectives`, a package above this one


class Targets(NamedTuple):
    """Targets of queries, in the order of their masks."""

    ids: Int[Tensor, "query target"]
    there: Bool[Tensor, "query target"]


class AbstractReading(ABC):
    """One way to answer; `reader` is not copied."""

    def __init__(self, reader: PreTrainedModel) -> None:
        self._reader: Any = reader

    @property
    @abstractmethod
    def bias(self) -> Tensor:
        """A parameter that affects every answer."""

    @abstractmethod
    def targets(self, labels: Int[Tensor, "query token"]) -> Targets:
        """The answers of queries, whose labels are −100 where there is no target."""

    @abstractmethod
    def predicted(
        self, inputs: dict[str, Tensor], asked: Bool[Tensor, "pair token"], targets: Targets
    ) -> tuple[Float[Tensor, "answer word"], Int[Tensor, " answer"], Int[Tensor, " answer"]]:
        """Log-probabilities of all words at every target of every pair, with the indices of its pair and target.

        Args:
            inputs: `input_ids`, `attention_mask` and `token_type_ids` of the pairs.
            asked: Positions of masks.
            targets: Targets of the same pairs.
        """


@final
class MaskedReading(AbstractReading):
    """A masked LM that fills all masks at once."""

    @property
    def bias(self) -> Tensor:
        return self._reader.cls.predictions.bias

    def targets(self, labels: Tensor) -> Targets:
        """The masked words."""
        return _in_order(labels)

    def predicted(self, inputs: dict[str, Tensor], asked: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        states = self._reader.bert(**inputs).last_hidden_state
        pair, place = asked.nonzero(as_tuple=True)
        rank = (asked.cumsum(dim=1) - 1)[pair, place]
        return _log_probabilities(self._reader.cls(states[pair, place])), pair, rank


@final
class WrittenReading(AbstractReading):
    """A decoder that writes the masked words one after the other, and an end."""

    @property
    def bias(self) -> Tensor:
        return self._reader.decoder.cls.predictions.bias

    def targets(self, labels: Tensor) -> Targets:
        """The masked words, with an end after the last one."""
        words = _in_order(labels)
        num = words.there.sum(dim=1)
        ids = torch.nn.functional.pad(words.ids, (0, 1))
        ids[torch.arange(len(ids), device=ids.device), num] = int(self._reader.config.eos_token_id)
        there = torch.arange(ids.shape[1], device=ids.device) <= num[:, None]
        return Targets(ids, there & (num > 0)[:, None])

    def predicted(self, inputs: dict[str, Tensor], asked: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        states = self._reader.encoder(**inputs).last_hidden_state
        pair, rank = targets.there.nonzero(as_tuple=True)
        return written(self._reader, states, inputs["attention_mask"], targets.ids)[pair, rank], pair, rank


def reading_of(reader: PreTrainedModel) -> AbstractReading:
    """The reading for this reader."""
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
    r"""\(\log p(\cdot \mid x, y_{<j})\) of an encoder-decoder before each token of `answers`, which are shifted inputs.

    Args:
        reader: An `EncoderDecoderModel`; its decoder begins with `config.decoder_start_token_id`.
        states: Encoder output of the rows.
        attention_mask: 0 at padding of the rows.
        answers: Token ids.
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
    asked = labels != _UNSUPERVISED
    rank = asked.cumsum(dim=1) - 1  # index of a masked token among its query's targets
    num = asked.sum(dim=1, keepdim=True)
    query, place = asked.nonzero(as_tuple=True)
    shape = (len(labels), max(int(num.max()), 1))
    ids = labels.new_zeros(shape).index_put((query, rank[query, place]), labels[query, place])
    return Targets(ids, torch.arange(shape[1], device=labels.device) < num)


def _log_probabilities(logits: Tensor) -> Tensor:
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(dim=-1)
