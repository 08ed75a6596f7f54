"""Where words begin among the pieces of a tokenizer."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from infoflow.corpus import Vocabulary

SPECIALS = ["<s>", "</s>", "<pad>"]


def _loaded(model, pre_tokenizer):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def _by_bytes(merges=()):
    merges = [("Ġ", "a"), *merges]
    names = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    model = models.BPE({name: place for place, name in enumerate(names)}, merges)
    return _loaded(model, pre_tokenizers.ByteLevel(add_prefix_space=False))


CHINESE = [("æ", "Ī"), ("æĪ", "ĳ"), ("ç", "Į"), ("çĮ", "«"), ("ã", "Ģ"), ("ãĢ", "Ĥ")]


@pytest.mark.parametrize("merges", [(), CHINESE[:1], CHINESE])
def test_characters_without_spaces_are_words_of_vocabularies_of_bytes(merges):
    tokenizer = _by_bytes(merges)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    encoded = tokenizer("我猫。é猫", return_offsets_mapping=True)
    starts = vocabulary.word_starts(np.array(encoded["input_ids"]))
    begins = [place for place, start in zip(encoded["offset_mapping"], starts, strict=True) if start]
    assert {first for first, _ in begins} == {0, 1, 2, 4}
    assert sum(starts) == 4


def test_letters_of_several_bytes_stay_in_their_word():
    tokenizer = _by_bytes()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer("été день दिन")["input_ids"]
    assert sum(vocabulary.word_starts(np.array(ids))) == 3


def test_full_stops_are_known_by_their_bytes():
    tokenizer = _by_bytes(CHINESE)
    stops = Vocabulary.from_tokenizer(tokenizer).full_stops
    assert {"ãĢĤ", "."} <= set(tokenizer.convert_ids_to_tokens(list(stops)))


def test_bytes_of_a_sentencepiece_vocabulary_are_parts_of_their_character():
    names = [*SPECIALS, "▁", "▁a", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({name: place for place, name in enumerate(names)}, [], byte_fallback=True)
    tokenizer = _loaded(model, pre_tokenizers.Metaspace(prepend_scheme="never"))
    ids = tokenizer("我猫")["input_ids"]
    assert list(Vocabulary.from_tokenizer(tokenizer).word_starts(np.array(ids))) == [True, False, False] * 2


def test_ids_may_have_holes():
    names = {"<s>": 0, "</s>": 1, "<pad>": 2, "cats": 3, "sleep": 6}
    model = models.WordLevel(names, unk_token="<pad>")
    vocabulary = Vocabulary.from_tokenizer(_loaded(model, pre_tokenizers.Whitespace()))
    assert vocabulary.size == 7
    assert vocabulary.ordinary.tolist() == [3, 6]
