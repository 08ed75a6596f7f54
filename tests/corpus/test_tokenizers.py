import pytest
from transformers import AutoTokenizer

from infoflow.corpus import SPECIAL_TOKENS, generate_grammar, load_tokenizer, train_tokenizer
from infoflow.foundation import UserError


@pytest.fixture(scope="module")
def texts():
    return list(generate_grammar(300).column("text"))


@pytest.fixture(scope="module")
def tokenizer(texts):
    return train_tokenizer(texts, 200)


def test_special_tokens_and_template(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    ids = [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]
    assert [*ids, tokenizer.mask_token_id] == [0, 1, 2, 3, 4]
    tokens = tokenizer("The dog", "a man").tokens()
    assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    assert len(tokenizer) == 200


def test_text_comes_back_lower_cased(tokenizer):
    assert tokenizer.decode(tokenizer("The OLD dogs")["input_ids"], skip_special_tokens=True) == "the old dogs"
    cased = train_tokenizer(["The OLD dogs"] * 3, 60, lowercase=False)
    assert cased.decode(cased("The OLD")["input_ids"], skip_special_tokens=True) == "The OLD"


def test_training_is_deterministic(texts, tokenizer):
    again = train_tokenizer(iter(texts), 200)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_saved_as_a_plain_folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    for loaded in (load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(str(tmp_path))):
        assert loaded("the dog sleeps .")["input_ids"] == tokenizer("the dog sleeps .")["input_ids"]
        assert loaded.mask_token == "[MASK]"
        assert loaded.model_max_length == 512


def test_errors(texts, tmp_path):
    with pytest.raises(UserError, match=r"must exceed the 5 special tokens\. Got 5"):
        train_tokenizer(texts, 5)
    with pytest.raises(UserError, match=r"vocab_size must be at least \d\d.* Got 10"):
        train_tokenizer(texts, 10)
    with pytest.raises(UserError, match="No tokenizer could be loaded"):
        load_tokenizer(tmp_path / "absent")
