"""What an objective reads off a tokenizer."""

from types import SimpleNamespace

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.objectives import OBJECTIVES, CausalLM, MaskedLM, Translation, Vocabulary, make_objective


class Tokenizer(SimpleNamespace):
    def __len__(self) -> int:
        return 9

    def get_vocab(self) -> dict[str, int]:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##re", ".", "<extra_id_0>"]
        return {piece: id for id, piece in enumerate(pieces)}


BERT_LIKE = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def test_special_ids_are_read_from_the_tokenizer() -> None:
    vocabulary = Vocabulary.from_tokenizer(Tokenizer(**BERT_LIKE, mask_token_id=4, all_special_ids=[4, 0, 2, 3, 1]))
    assert (vocabulary.size, vocabulary.pad, vocabulary.start, vocabulary.end, vocabulary.mask) == (9, 0, 2, 3, 4)
    assert vocabulary.ordinary.tolist() == [5, 6, 7, 8]
    assert np.flatnonzero(vocabulary.is_special).tolist() == [0, 1, 2, 3, 4]
    assert (vocabulary.sentinels, vocabulary.full_stops) == ((8,), (7,))
    assert vocabulary.word_starts(np.array([2, 5, 6, 7, 3])).tolist() == [True, True, False, True, True]


def test_bos_and_eos_serve_where_there_is_no_cls() -> None:
    ids = {**BERT_LIKE, "cls_token_id": None, "sep_token_id": None, "bos_token_id": 0, "eos_token_id": 1}
    vocabulary = Vocabulary.from_tokenizer(Tokenizer(**ids, mask_token_id=None, all_special_ids=[0, 1]))
    assert (vocabulary.start, vocabulary.end, vocabulary.mask) == (0, 1, None)


def test_a_tokenizer_without_padding_is_refused() -> None:
    ids = {**BERT_LIKE, "pad_token_id": None}
    with pytest.raises(UserError, match="Got pad=None"):
        Vocabulary.from_tokenizer(Tokenizer(**ids, mask_token_id=None, all_special_ids=[]))


def test_objectives_are_made_by_name_with_their_options() -> None:
    assert list(OBJECTIVES)[:3] == ["causal-lm", "masked-lm", "translation"]
    assert all(make_objective(name).name == name for name in OBJECTIVES)
    assert make_objective("causal-lm", token_dropout=0.1) == CausalLM(token_dropout=0.1)
    assert make_objective("masked-lm") == MaskedLM()
    assert make_objective("translation").needs_translation is Translation.needs_translation is True


def test_unknown_names_and_options_are_named() -> None:
    with pytest.raises(UserError, match=r"No objective is called mlm. .*Choose one of: causal-lm"):
        make_objective("mlm")
    with pytest.raises(UserError, match=r"causal-lm has no option rate. Its options: token_dropout"):
        make_objective("causal-lm", rate=0.1)
