"""A folder yields the token ids of the tokenizer that was saved, whatever class transformers has for its family."""

import json
from pathlib import Path

import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from infoflow.corpus import read_tokenizer

TEXTS = (
    "The old cat, e.g. Tom's, sleeps: 3.14 km away!",
    "Ünï-code  café 2024\n老猫在睡觉。 Кошка спит.",
    "don't  stop <mask> here<s>",
    "",
)
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}


def learned(kind: str) -> Tokenizer:
    special = list(SPECIAL.values())
    if kind == "words":
        core = Tokenizer(models.BPE(unk_token="<unk>"))
        core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        core.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    elif kind == "bytes":
        core, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
        core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "pieces":
        core = Tokenizer(models.WordPiece(unk_token="<unk>"))
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=160, special_tokens=special, show_progress=False)
    else:
        core = Tokenizer(models.Unigram())
        core.normalizer, core.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="always")
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    core.train_from_iterator([*TEXTS] * 10, trainer)
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, core.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    return core


def ids(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    return [tokenizer(text)["input_ids"] for text in TEXTS]


@pytest.fixture(scope="module", params=["words", "bytes", "pieces", "units"])
def own(request) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=learned(request.param), model_max_length=64, **SPECIAL)


FAMILIES = "bert roberta gpt2 llama mistral qwen2 qwen3 cohere gemma2 gpt_neox t5 mbart albert xlm-roberta deberta-v2"


@pytest.mark.parametrize("family", FAMILIES.split())
@pytest.mark.parametrize("configured", [True, False])
def test_a_tokenizer_of_ones_own_keeps_its_tokens(own, family, configured, tmp_path) -> None:
    own.save_pretrained(tmp_path)
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    if not configured:
        (tmp_path / "tokenizer_config.json").unlink()
    found = read_tokenizer(tmp_path)
    assert ids(found) == ids(own)
    assert len(found) == len(own)
    if configured:
        assert {name: getattr(found, name) for name in SPECIAL} == SPECIAL
        assert found.model_max_length == 64


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"]
VOCABULARY += [*sorted(pre_tokenizers.ByteLevel.alphabet()), "▁", "▁th", "th", "the", "##e", "##h", "Ġt"]
NUMBERED = {token: index for index, token in enumerate(VOCABULARY)}
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "t"), ("▁", "th")]
SAVED = {
    "BertTokenizer": ("bert", {"vocab": NUMBERED, "do_lower_case": False}),
    "GPT2Tokenizer": ("gpt2", {"vocab": NUMBERED, "merges": MERGES, "add_prefix_space": True}),
    "RobertaTokenizer": ("roberta", {"vocab": NUMBERED, "merges": MERGES}),
    "Qwen2Tokenizer": ("qwen2", {"vocab": NUMBERED, "merges": MERGES}),
    "LlamaTokenizer": ("llama", {"vocab": NUMBERED, "merges": MERGES, "add_bos_token": True}),
    "T5Tokenizer": ("t5", {"vocab": [(token, -0.1 * index) for token, index in NUMBERED.items()], "extra_ids": 3}),
    "XLMRobertaTokenizer": ("xlm-roberta", {"vocab": [(token, -1.0) for token in VOCABULARY]}),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_tokenizer_of_a_class_of_transformers_comes_back(name, tmp_path) -> None:
    family, settings = SAVED[name]
    saved = getattr(transformers, name)(**settings)
    saved.add_tokens(["newword"])
    saved.save_pretrained(tmp_path)
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    found = read_tokenizer(tmp_path)
    assert ids(found) == ids(saved)
    assert found("a newword")["input_ids"] == saved("a newword")["input_ids"]
    assert type(found).__name__ == name


def test_the_language_of_a_translator_stays_its_class_setting(tmp_path) -> None:
    pieces = [*VOCABULARY, "eng_Latn", "deu_Latn"]
    saved = transformers.NllbTokenizer(
        vocab={token: index for index, token in enumerate(pieces)}, merges=MERGES, src_lang="deu_Latn"
    )
    saved.save_pretrained(tmp_path)
    AutoConfig.for_model("m2m_100").save_pretrained(tmp_path)
    found = read_tokenizer(tmp_path)
    assert type(found) is transformers.NllbTokenizer
    assert ids(found) == ids(saved)


def test_slow_files_alone_are_read(tmp_path) -> None:
    for name in ("bert", "gpt2"):
        (tmp_path / name).mkdir()
        AutoConfig.for_model(name).save_pretrained(tmp_path / name)
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (tmp_path / "gpt2" / "vocab.json").write_text(json.dumps(NUMBERED), encoding="utf-8")
    (tmp_path / "gpt2" / "merges.txt").write_text("#version: 0.2\nt h\nth e\n", encoding="utf-8")
    assert read_tokenizer(tmp_path / "bert").tokenize("the") == ["the"]
    assert read_tokenizer(tmp_path / "gpt2").tokenize("the") == ["the"]


def test_a_sentencepiece_model_alone_is_read(tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["the old cat sleeps", "a dog barks"] * 50), encoding="utf-8")
    for family, file, kind, size in (("llama", "tokenizer.model", "bpe", 34), ("t5", "spiece.model", "unigram", 19)):
        folder = tmp_path / family
        folder.mkdir()
        spm.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / "m"), vocab_size=size, model_type=kind, minloglevel=2
        )
        (folder / "m.model").rename(folder / file)
        AutoConfig.for_model(family).save_pretrained(folder)
        pieces = spm.SentencePieceProcessor(model_file=str(folder / file)).encode("the cat", out_type=str)
        assert read_tokenizer(folder).tokenize("the cat") == pieces


def test_a_class_that_reads_its_own_files_is_the_one_that_was_saved(tmp_path: Path) -> None:
    """Beside the configuration of Qwen 2 transformers takes a class that finds no vocabulary there."""
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text("\n".join(["the old cat sleeps", "a dog barks"] * 50), encoding="utf-8")
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "m"), vocab_size=19, minloglevel=2
    )
    saved = transformers.BertGenerationTokenizer(str(tmp_path / "m.model"))
    saved.save_pretrained(tmp_path / "folder")
    AutoConfig.for_model("qwen2").save_pretrained(tmp_path / "folder")
    found = read_tokenizer(tmp_path / "folder")
    assert ids(found) == ids(saved)
    assert found.get_vocab() == saved.get_vocab()
