"""What two encoders read, and which of their tokens stand for linked words."""

import numpy as np
import pytest
import torch

from infoflow.alignment import IdentityLinks, LinkedSentences, PharaohLinks, ShuffledLinks, word_vectors
from infoflow.foundation import UserError


def vectors_by_loops(states, words, chosen, merge):
    """Token by token."""
    rows = []
    for sentence, word in chosen.tolist():
        inside = [token for token, of in enumerate(words[sentence].tolist()) if of == word]
        vectors = states[sentence, inside]
        rows.append(vectors[-1] if merge == "last" else vectors.mean(dim=0))
    return torch.stack(rows)


@pytest.mark.parametrize("merge", ["last", "mean"])
def test_word_vectors_agree_with_loops(merge):
    words = torch.tensor([[-1, 0, 0, 1, -1, -1], [-1, 0, 1, 1, 1, -1], [-1, 0, -1, -1, -1, -1]])
    chosen = torch.tensor([[1, 1], [0, 0], [0, 1], [2, 0], [1, 0], [1, 1]])
    states = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    expected = vectors_by_loops(states, words, chosen, merge)
    torch.testing.assert_close(word_vectors(states, words, chosen, merge), expected)


def test_a_word_vector_is_that_of_its_last_subword_by_default():
    states = torch.arange(3.0).view(1, 3, 1)
    chosen = torch.tensor([[0, 0]])
    assert word_vectors(states, torch.tensor([[-1, 0, 0]]), chosen).item() == 2
    assert word_vectors(states, torch.tensor([[-1, 0, 0]]), chosen, "mean").item() == 1.5


def read(stream, tokenizer, sentence, word):
    """The text of a word's tokens."""
    return "".join(tokenizer.decode(stream.input_ids[sentence][stream.words[sentence] == word]).split())


def test_linked_words_are_the_same_words_under_different_tokenizers(masked, narrow, parallel_corpus):
    sentences = LinkedSentences(masked, narrow, parallel_corpus, IdentityLinks())
    batch = sentences.batch(np.array([5, 0, 17]))
    assert len(batch.source_words) == sum(len(parallel_corpus[row].text.split()) for row in (5, 0, 17))
    assert batch.source.input_ids.shape != batch.target.input_ids.shape
    for (sentence, word), (other, target_word) in zip(
        batch.source_words.tolist(), batch.target_words.tolist(), strict=True
    ):
        assert sentence == other
        assert read(batch.source, masked.tokenizer, sentence, word) == read(
            batch.target, narrow.tokenizer, other, target_word
        )


def test_the_target_side_is_the_translation(masked, translator, parallel_corpus, tmp_path):
    """A published data script put the source's file into the target side."""
    path = tmp_path / "links.txt"
    path.write_text("".join("0-0\n" for _ in parallel_corpus))
    links = PharaohLinks.read(path, parallel_corpus)
    reader = translator.__class__(
        **{**vars(translator), "tokenizer": translator.target_tokenizer, "target_tokenizer": None}
    )
    sentences = LinkedSentences(masked, reader, parallel_corpus, links, translated=True)
    batch = sentences.batch(np.arange(4))
    for place, sentence in enumerate(parallel_corpus[:4]):
        assert masked.tokenizer.decode(batch.source.input_ids[place], skip_special_tokens=True) == sentence.text
        found = reader.tokenizer.decode(batch.target.input_ids[place], skip_special_tokens=True)
        assert found == sentence.translation != sentence.text


def test_words_that_were_cut_off_have_no_link(masked, narrow, parallel_corpus):
    sentences = LinkedSentences(masked, narrow, parallel_corpus, IdentityLinks(), max_length=6)
    batch = sentences.batch(np.arange(len(parallel_corpus)))
    for stream, words in ((batch.source, batch.source_words), (batch.target, batch.target_words)):
        assert stream.input_ids.shape[1] <= 6
        assert all(bool((stream.words[sentence] == word).any()) for sentence, word in words.tolist())


def test_shuffled_links_join_different_sentences(masked, translator, parallel_corpus):
    sentences = LinkedSentences(masked, translator, parallel_corpus, ShuffledLinks())
    rows = np.arange(10)
    batch = sentences.batch(rows)
    same = LinkedSentences(masked, translator, parallel_corpus, IdentityLinks()).batch(rows)
    assert torch.equal(batch.source.input_ids, same.source.input_ids)
    assert batch.target.input_ids.shape != same.target.input_ids.shape or not torch.equal(
        batch.target.input_ids, same.target.input_ids
    )


def test_translations_need_links(masked, translator, parallel_corpus):
    with pytest.raises(UserError, match=r"PharaohLinks\.read"):
        LinkedSentences(masked, translator, parallel_corpus, IdentityLinks(), translated=True)
