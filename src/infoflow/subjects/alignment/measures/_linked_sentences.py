"""Sentences as input of two encoders, with linked words."""

# B sentence, T token, D width

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import Reader, Stream
from infoflow.foundation import UserError
from infoflow.models import Model

from ._encoders import Merge
from ._links import AbstractWordLinks, IdentityLinks

Words = Int[Tensor, "link 2"]
"""Row of a batch, word of that sentence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LinkedBatch:
    """Some sentences on both sides; link i joins word i of `source_words` and of `target_words`."""

    source: Stream
    target: Stream
    source_words: Words
    target_words: Words
    rows: np.ndarray  # of the source sentences, in the corpus


class LinkedSentences:
    """A corpus as input of two models: the source reads its text, the target the text too or its translation.

    Raises:
        UserError: Links need the same text on both sides, but there is a translation; or a tokenizer is slow and knows
            no words.
    """

    def __init__(
        self,
        source: Model,
        target: Model,
        corpus: Corpus,
        links: AbstractWordLinks,
        *,
        translated: bool = False,
        max_length: int = 64,
    ) -> None:
        if translated and isinstance(links, IdentityLinks):
            raise UserError(
                "Words of a text and of its translation do not correspond one by one. Give links: PharaohLinks.read."
            )
        target_corpus = _translations(corpus) if translated else corpus
        self.corpus, self.links, self.translated = corpus, links, translated
        self._source, self._target = (
            _reader(*side, max_length, links) for side in ((source, corpus), (target, target_corpus))
        )
        self._partners = links.partners(len(corpus))

    def __len__(self) -> int:
        return len(self.corpus)

    def by_length(self, token_budget: int) -> list[np.ndarray]:
        """All rows in batches of similar length; sentences without a token are left out."""
        return self._source.batches(token_budget)

    def batch(self, rows: np.ndarray) -> LinkedBatch:
        """The sentences `rows`, padded, with their linked words."""
        source = self._source.padded(rows).streams["encoder"]
        target = self._target.padded(self._partners[rows]).streams["encoder"]
        links = [_links(self.links, int(self.corpus.ids[row]), source, target, at) for at, row in enumerate(rows)]
        place = np.repeat(np.arange(len(rows)), [len(pairs) for pairs in links])
        words = np.concatenate(links)
        source_words, target_words = (torch.from_numpy(np.stack([place, words[:, side]], axis=1)) for side in (0, 1))
        return LinkedBatch(
            source=source, target=target, source_words=source_words, target_words=target_words, rows=rows
        )


def word_vectors(
    states_BTD: Float[Tensor, "sentence token width"],
    words_BT: Int[Tensor, "sentence token"],
    chosen: Words,
    merge: Merge = "last",
) -> Float[Tensor, "link width"]:
    """One vector per chosen word: its last token's, or the mean over its tokens."""
    sentence = chosen[:, 0]
    inside = words_BT[sentence] == chosen[:, 1:]
    if merge == "last":
        last = inside.shape[1] - 1 - inside.flip(1).int().argmax(dim=1)
        return states_BTD[sentence, last]
    weights = inside.to(states_BTD.dtype) / inside.sum(dim=1, keepdim=True)
    return torch.einsum("lt,ltd->ld", weights, states_BTD[sentence])


def _reader(model: Model, corpus: Corpus, max_length: int, links: AbstractWordLinks) -> Reader:
    if not model.require_tokenizer().is_fast:
        raise UserError(
            f"The tokenizer of {model.name} is slow and knows no words, so its words cannot be linked. "
            "Load the model with a fast tokenizer."
        )
    options = {"max_length": max_length, "seed": 0, "decoder": False, "white_space_words": True}
    return Reader(model, corpus, **options, word_spans=links.word_spans)


def _translations(corpus: Corpus) -> Corpus:
    """The other side of a parallel corpus, as text."""
    corpus.require("translation")
    side = corpus.dataset.select_columns(["translation"])
    return Corpus.from_dataset(side, text="translation", name=f"{corpus.name}, translations")


def _links(links: AbstractWordLinks, sentence_id: int, source: Stream, target: Stream, place: int) -> np.ndarray:
    """The links of a sentence between words that have their own token: one token may span two words."""
    sides = [stream.words[place].cpu().numpy() for stream in (source, target)]
    pairs = links.of(sentence_id, *(int(words.max()) + 1 for words in sides))
    return pairs[np.isin(pairs[:, 0], sides[0]) & np.isin(pairs[:, 1], sides[1])]
