"""Linked words of held-out sentences, with two encoders' states."""

# L layers, n word, D width

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, Occurrences, SampleFacts, TokenSample
from infoflow.foundation import UserError, block_of, hash64_array
from infoflow.models import Model, load_model, tap

from ._encoders import AlignedEncoder, Merge, encode, encoder_of
from ._links import LinkedBatch, LinkedSentences, word_vectors

_TOKENS = 4096
"""Tokens per batch; does not affect results."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HeldOutWords:
    """Words with the target encoder's states and their identities, in the order of a hash."""

    sentences: LinkedSentences
    order: Int[np.ndarray, " word"]
    """For each word here, its index in reading order (that of `by_length`)."""
    sentence_ids: Int[np.ndarray, " word"]
    places: Int[np.ndarray, " word"]
    """Index of the word in its source sentence."""
    target: TokenSample

    @classmethod
    def read(cls, sentences: LinkedSentences, target: Model, words: int, merge: Merge) -> "HeldOutWords":
        """At most `words` words with the target encoder's states; smaller samples are prefixes of larger ones."""
        ids, places, target_places = _words_of(sentences)
        if len(ids) == 0:
            raise UserError(f"No word of the {len(sentences):,} held-out sentences is linked.")
        order = np.argsort(hash64_array(("held-out-words",), ids, places), kind="stable")[:words]
        states = _target_states(sentences, target, merge)[:, order]
        text = _translations if sentences.translated else _texts
        types = _types(text(sentences), ids[order], target_places[order], sentences.corpus)
        sample = word_sample(target.name, states, ids[order], target_places[order], types)
        return cls(sentences=sentences, order=order, sentence_ids=ids[order], places=places[order], target=sample)

    @property
    def blocks(self) -> Int[np.ndarray, " word"]:
        """Bootstrap block of each word's sentence."""
        return block_of(self.sentence_ids)

    def __len__(self) -> int:
        return len(self.order)

    def of(self, aligned: AlignedEncoder, source: Model) -> tuple[TokenSample, TokenSample]:
        """The words in another encoder: in all its layers, and in the top layer after the map (as a single layer)."""
        layers, mapped = _source_states(self.sentences, aligned, source)
        types = _types(_texts(self.sentences), self.sentence_ids, self.places, self.sentences.corpus)
        what = self.sentence_ids, self.places, types
        return (
            word_sample(source.name, layers[:, self.order], *what),
            word_sample(source.name, mapped[None, self.order], *what),
        )


def linked_vectors(
    sentences: LinkedSentences, aligned: AlignedEncoder, target: Model, words: int
) -> tuple[Float[Tensor, "word width"], Float[Tensor, "word target_width"]]:
    """Top-layer vectors, before any map, of the first `words` linked words on both sides, for fitting maps."""
    given, wanted, num = [], [], 0
    other, device = encoder_of(target), target.device
    with torch.inference_mode():
        for batch in _batches(sentences):
            source = encode(aligned.encoder, batch.source.input_ids.to(device), batch.source.real.to(device)).cpu()
            reached = encode(other, batch.target.input_ids.to(device), batch.target.real.to(device)).cpu()
            given.append(word_vectors(source, batch.source.words, batch.source_words, aligned.merge))
            wanted.append(word_vectors(reached, batch.target.words, batch.target_words, aligned.merge))
            num += len(batch.source_words)
            if num >= words:
                break
    return torch.cat(given)[:words], torch.cat(wanted)[:words]


def word_sample(
    name: str,
    states: Float[np.ndarray, "layer word width"],
    sentence_ids: Int[np.ndarray, " word"],
    places: Int[np.ndarray, " word"],
    types: Int[np.ndarray, " word"],
) -> TokenSample:
    """Words as a token sample for any measure of samples; each counts as one token."""
    constant = np.ones(len(types), dtype=np.int64)
    occurrences = Occurrences(
        sentence=sentence_ids,
        row=sentence_ids,
        position=places,
        token=types,
        label=constant * NO_LABEL,
        previous=-constant,
        next=-constant,
        word=places,
        draw=0 * constant,
        subword=0 * constant,
        subwords=constant,
        word_type=types,
    )
    counts = np.bincount(types)
    facts = SampleFacts(
        model=name,
        stack="encoder",
        regime="clean",
        task="encoder",
        seed=0,
        tokenizer="words",
        frequencies=counts,
        ranks=np.zeros_like(counts),
    )
    return TokenSample(occurrences, states, facts)


def _batches(sentences: LinkedSentences) -> Iterator[LinkedBatch]:
    for rows in sentences.by_length(_TOKENS):
        batch = sentences.batch(rows)
        if len(batch.source_words):
            yield batch


def _words_of(sentences: LinkedSentences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sentence id, source word and target word of every link, in reading order."""
    ids, places, target_places = [np.empty(0, dtype=np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for batch in _batches(sentences):
        sentence, place = batch.source_words.numpy().T
        ids.append(sentences.corpus.content_ids[batch.rows[sentence]])
        places.append(place)
        target_places.append(batch.target_words[:, 1].numpy())
    return np.concatenate(ids), np.concatenate(places), np.concatenate(target_places)


def _target_states(sentences: LinkedSentences, target: Model, merge: Merge) -> Float[np.ndarray, "layer word width"]:
    encoder, device, found = encoder_of(target), target.device, []
    with torch.inference_mode(), tap(target, hidden=True) as seen:
        for batch in _batches(sentences):
            encode(encoder, batch.target.input_ids.to(device), batch.target.real.to(device))
            states = [state.float().cpu() for state in seen.hidden["encoder"]]
            found.append([word_vectors(state, batch.target.words, batch.target_words, merge) for state in states])
    return _stacked(found)


def _source_states(
    sentences: LinkedSentences, aligned: AlignedEncoder, source: Model
) -> tuple[Float[np.ndarray, "layer word width"], Float[np.ndarray, "word target_width"]]:
    model = load_model(aligned.encoder, tokenizer=source.tokenizer)
    layers, mapped = [], []
    with torch.inference_mode(), tap(model, hidden=True) as seen:
        for batch in _batches(sentences):
            ids, real = batch.source.input_ids.to(model.device), batch.source.real.to(model.device)
            output = aligned(ids, real).float().cpu()
            states = [state.float().cpu() for state in seen.hidden["encoder"]]
            at = batch.source.words, batch.source_words, aligned.merge
            mapped.append(word_vectors(output, *at))
            layers.append([word_vectors(state, *at) for state in states])
    return _stacked(layers), torch.cat(mapped).numpy()


def _stacked(found: list[list[Tensor]]) -> Float[np.ndarray, "layer word width"]:
    return torch.stack([torch.cat(parts) for parts in zip(*found, strict=True)]).numpy()


def _texts(sentences: LinkedSentences) -> list[list[str]]:
    return [one.words or _words(sentences, one.text) for one in sentences.corpus]


def _translations(sentences: LinkedSentences) -> list[list[str]]:
    return [_words(sentences, one.translation or "") for one in sentences.corpus]


def _words(sentences: LinkedSentences, text: str) -> list[str]:
    return [text[start:end] for start, end in sentences.links.word_spans(text)]


def _types(texts: list[list[str]], ids: np.ndarray, places: np.ndarray, corpus: Corpus) -> Int[np.ndarray, " word"]:
    """A number for each word, shared by words that differ only in case and surrounding punctuation."""
    row = {int(sentence): index for index, sentence in enumerate(corpus.content_ids)}
    words = [texts[row[sentence]][place] for sentence, place in zip(ids.tolist(), places.tolist(), strict=True)]
    names = np.array([_bare(word).casefold() or word for word in words], dtype=object)
    return pd.factorize(names)[0].astype(np.int64)


def _bare(word: str) -> str:
    """The word without surrounding punctuation; combining marks of its letters stay."""
    inner = [index for index, sign in enumerate(word) if sign == "_" or unicodedata.category(sign)[0] in "LMN"]
    return word[inner[0] : inner[-1] + 1] if inner else ""
