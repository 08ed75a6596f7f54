"""The words of a padded batch."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import NOT_A_WORD
from infoflow.flow import Stream


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BatchWords:
    """Which tokens of a batch make up which word.

    Special tokens, padding and words without letter or digit are left out, as in `WordRows`.
    """

    merge: str
    """"mean", "first", "last", or "token" where words were not asked for or the tokenizer knows none."""
    tokens: Int[Tensor, " token"]
    """Index of each word's tokens in the flattened batch, word by word."""
    counts: Int[Tensor, " word"]
    """Number of tokens of each word."""
    sentences: Int[Tensor, " word"]
    """Row of the batch that each word is in."""

    @classmethod
    def of(cls, stream: Stream, merge: str, symbols: Int[Tensor, " id"]) -> "BatchWords":
        """The words of a stream; `symbols` are the token ids without letter or digit."""
        valid = stream.valid
        tokens = valid.flatten().nonzero()[:, 0]
        length = valid.shape[1]
        lexical = torch.isin(stream.input_ids.flatten()[tokens], symbols, invert=True)
        if merge == "token" or bool((stream.words[valid] == NOT_A_WORD).all()):
            tokens = tokens[lexical]
            return cls(merge="token", tokens=tokens, counts=torch.ones_like(tokens), sentences=tokens // length)
        in_words = stream.words.flatten()[tokens] != NOT_A_WORD
        tokens, lexical = tokens[in_words], lexical[in_words]
        places = tokens // length * length + stream.words.flatten()[tokens]
        kept = torch.isin(places, places[lexical])
        words, counts = torch.unique_consecutive(places[kept], return_counts=True)
        return cls(merge=merge, tokens=tokens[kept], counts=counts, sentences=words // length)

    def merged(self, states: Float[Tensor, "sentence token width"]) -> Float[Tensor, "word width"]:
        """One state per word, in float64."""
        rows = states.flatten(0, 1)
        ends = self.counts.cumsum(0)
        if self.merge == "mean":
            numbers = torch.arange(len(ends), device=rows.device).repeat_interleave(self.counts)
            sums = torch.zeros(len(ends), rows.shape[1], dtype=torch.float64, device=rows.device)
            return sums.index_add_(0, numbers, rows[self.tokens].double()) / self.counts.unsqueeze(1)
        at = ends - self.counts if self.merge == "first" else ends - 1
        return rows[self.tokens[at]].double()
