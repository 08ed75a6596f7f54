"""New tokens of a tokenizer and of a model: learned again by an explicit loop, old ids and rows as they were."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    GPT2Tokenizer,
    PreTrainedTokenizerFast,
)

from infoflow.adaptation import add_tokens, extend_vocabulary
from infoflow.corpus import Vocabulary, generate_grammar, train_tokenizer
from infoflow.foundation import UserError


def _texts(num, seed=0):
    return list(generate_grammar(num, seed=seed).column("text"))


def _own(tmp_path):
    return train_tokenizer(_texts(300), 110, sentinels=4)


def _wordpiece(tmp_path):
    learned = BertWordPieceTokenizer()
    learned.train_from_iterator(_texts(300), vocab_size=110, show_progress=False)
    learned.save_model(str(tmp_path))
    return BertTokenizer.from_pretrained(tmp_path)


def _byte_level(tmp_path):
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(_texts(300), vocab_size=300, show_progress=False, special_tokens=["<|endoftext|>"])
    learned.save_model(str(tmp_path))
    return GPT2Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("make", [_own, _wordpiece, _byte_level])
def test_old_ids_stay_and_a_new_token_is_a_row_of_old_ones(make, tmp_path) -> None:
    old, texts = make(tmp_path), _texts(200, seed=7)
    extended = extend_vocabulary(old, texts, 30)
    extended.tokenizer.save_pretrained(tmp_path / "new")
    new = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert len(new) == len(old) + 30
    assert old.get_vocab().items() <= new.get_vocab().items()
    assert sorted(extended.pieces) == list(range(len(old), len(old) + 30))
    for text in texts[:50]:
        by_old = old(text, add_special_tokens=False)["input_ids"]
        by_new = new(text, add_special_tokens=False)["input_ids"]
        if make is not _wordpiece:  # which takes the longest piece that it knows: a new one may begin another word
            assert [piece for id in by_new for piece in extended.pieces.get(id, [id])] == by_old
        assert len(by_new) <= len(by_old)
        assert old.decode(by_old) == new.decode(by_new)


def test_text_without_new_tokens_is_cut_as_before(tmp_path) -> None:
    old = _own(tmp_path)
    new = extend_vocabulary(old, ["zebras quiz zebras"] * 3, 5).tokenizer
    for text in _texts(30, seed=1):
        assert new(text)["input_ids"] == old(text)["input_ids"]
    assert Vocabulary.from_tokenizer(new).sentinels == Vocabulary.from_tokenizer(old).sentinels


def test_tokens_are_those_of_a_plain_loop(tmp_path) -> None:
    old, texts = _own(tmp_path), _texts(80, seed=3)
    words = Counter(
        tuple(token for token, own in zip(cut.tokens, cut.word_ids, strict=True) if own == word)
        for text in texts
        for cut in [old.backend_tokenizer.encode(text, add_special_tokens=False)]
        for word in sorted({one for one in cut.word_ids if one is not None})
    )
    wanted = []
    known = set(old.get_vocab())
    for _ in range(12):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = min((pair for pair in pairs if "".join(pair) not in known), key=lambda pair: (-pairs[pair], pair))
        wanted.append("".join(best))
        known.add(wanted[-1])
        words = Counter({_merged(word, best): count for word, count in words.items()})
    extended = extend_vocabulary(old, texts, 12)
    assert extended.tokenizer.convert_ids_to_tokens(sorted(extended.pieces)) == wanted


def _merged(word, best):
    found = []
    for piece in word:
        if found and (found[-1], piece) == best:
            found[-1] += piece
        else:
            found.append(piece)
    return tuple(found)


def test_new_rows_are_means_and_old_rows_stay(tmp_path) -> None:
    old = _own(tmp_path)
    extended = extend_vocabulary(old, _texts(100, seed=2), 20)
    torch.manual_seed(0)
    size = len(old)
    config = BertConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = BertForMaskedLM(config)
    torch.nn.init.normal_(model.cls.predictions.decoder.bias)
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    biases = model.cls.predictions.decoder.bias.detach().clone()
    ids = torch.tensor([old("the dog sees")["input_ids"]])
    logits = model.eval()(ids).logits
    add_tokens(model, extended)
    weights, bias = model.get_input_embeddings().weight, model.get_output_embeddings().bias
    assert model.config.vocab_size == size + 20
    torch.testing.assert_close(weights[:size], before, rtol=0, atol=0)
    for new, pieces in extended.pieces.items():
        torch.testing.assert_close(weights[new], before[pieces].mean(0))
        torch.testing.assert_close(bias[new], biases[pieces].mean(0))
    torch.testing.assert_close(model(ids).logits[..., :size], logits)
    assert model.get_output_embeddings().weight is weights  # tied as before


def test_fewer_where_nothing_is_frequent_and_refused_where_it_cannot_be(tmp_path) -> None:
    assert extend_vocabulary(_own(tmp_path), ["xyz"], 10).pieces == {}
    with pytest.raises(UserError, match=r"BPE and WordPiece tokenizers can be extended\. Got Unigram"):
        _extend_unigram()


def _extend_unigram():
    from tokenizers import SentencePieceUnigramTokenizer

    learned = SentencePieceUnigramTokenizer()
    special = {"special_tokens": ["<unk>"], "unk_token": "<unk>"}
    learned.train_from_iterator(_texts(100), vocab_size=80, show_progress=False, **special)
    extend_vocabulary(PreTrainedTokenizerFast(tokenizer_object=learned._tokenizer), ["a b"], 1)
