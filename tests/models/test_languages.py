"""Languages and prefixes: what a loaded model's tokenizer puts around texts, and what the model then writes."""

import json

import pytest
import sentencepiece
import tokenizers
import torch
import transformers

from infoflow.corpus import Corpus, tokenizer_digest
from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import decoder_inputs, load_model, translate

WORDS = ("a", "b", "Das", "Haus", "ist", "alt", ".", "3", "cats", "translate", "German", ":")
SIGNS = sorted({*"".join(WORDS)})
BEGIN = ["<s>", "<pad>", "</s>", "<unk>", "▁"]


def tokenizer_of(family):
    if family == "nllb":
        return transformers.NllbTokenizer(vocab={piece: at for at, piece in enumerate(BEGIN + SIGNS)}, merges=[])
    kind = transformers.MBartTokenizer if family == "mbart" else transformers.MBart50Tokenizer
    return kind(vocab=[(piece, -float(at)) for at, piece in enumerate(BEGIN + SIGNS)])


def module_of(tokenizer, family):
    kind, config = (
        ("M2M100ForConditionalGeneration", "M2M100Config")
        if family == "nllb"
        else ("MBartForConditionalGeneration", "MBartConfig")
    )
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(vocab_size=len(tokenizer), **sizes, **ids)).eval()


SOURCE, TARGET = {"nllb": "fra_Latn", "mbart": "fr_XX", "mbart-50": "fr_XX"}, {"nllb": "deu_Latn"}


@pytest.mark.parametrize("family", SOURCE)
def test_texts_are_marked_and_written_in_the_languages_that_were_chosen(family):
    tokenizer = tokenizer_of(family)
    module = module_of(tokenizer, family)
    source, target = SOURCE[family], TARGET.get(family, "de_DE")
    model = load_model(module, tokenizer, source_language=source, target_language=target)
    own = tokenizer_of(family)
    own.src_lang, own.tgt_lang = source, target
    assert model.tokenizer("a b")["input_ids"] == own("a b")["input_ids"]
    assert model.tokenizer(text_target="a b")["input_ids"] == own(text_target="a b")["input_ids"]
    code = own.convert_tokens_to_ids(target)
    how = {"decoder_start_token_id": code} if family == "mbart" else {"forced_bos_token_id": code}
    inputs = own("a b cats", return_tensors="pt")
    right = module.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=20, **how)
    assert translate(model, ["a b cats"], beams=1) == own.batch_decode(right, skip_special_tokens=True)
    assert tokenizer.src_lang != source  # the caller's stays as it was
    assert model.digest != load_model(module, tokenizer).digest


def seamless_tokenizer():
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "▁", *SIGNS, "▁a", "▁b"]
    marks = ["__eng__", "__fra__", "__deu__"]
    vocabulary = {piece: at for at, piece in enumerate(pieces)}
    return transformers.SeamlessM4TTokenizer(
        vocab=vocabulary, merges=[("▁", "a"), ("▁", "b")], additional_special_tokens=marks
    )


def seamless(tokenizer, kind, writes=("fra", "deu")):
    """A tiny model of the family; its configuration of generation names the languages that it writes."""
    side = {f"{side}_{what}": size for side in ("encoder", "decoder", "speech_encoder") for what, size in (
        ("layers", 1), ("attention_heads", 2), ("ffn_dim", 16),
    )}  # fmt: skip
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}
    config = getattr(transformers, f"{kind.partition('For')[0].removesuffix('Model')}Config")(
        vocab_size=len(tokenizer), hidden_size=16, max_position_embeddings=64, initializer_range=0.5, **side, **ids
    )
    torch.manual_seed(0)
    module = getattr(transformers, kind)(config).eval()
    codes = {code: tokenizer.convert_tokens_to_ids(f"__{code}__") for code in writes}
    for name in ("text_decoder_lang_to_code_id", "t2u_lang_code_to_id", "vocoder_lang_code_to_id"):
        setattr(module.generation_config, name, codes)
    return module


@pytest.mark.parametrize("kind", ["SeamlessM4TForTextToText", "SeamlessM4Tv2ForTextToText", "SeamlessM4TModel"])
def test_seamless_reads_scores_and_writes_the_languages_that_were_chosen(kind):
    tokenizer = seamless_tokenizer()
    module = seamless(tokenizer, kind)
    model = load_model(module, tokenizer, source_language="deu", target_language="fra")
    own = seamless_tokenizer()
    deu, fra, end = own.convert_tokens_to_ids(["__deu__", "__fra__", "</s>"])
    before = tokenizer_digest(model.tokenizer)
    words = own("a b", add_special_tokens=False)["input_ids"]
    assert model.tokenizer("a b")["input_ids"] == [deu, *words, end]
    target = model.tokenizer(text_target="a b")["input_ids"]
    assert target == [end, fra, *words, end]
    assert tokenizer_digest(model.tokenizer) == before  # whichever side was encoded last
    inputs = own(["a b cats"], src_lang="deu", return_tensors="pt")
    how = {"generate_speech": False} if kind == "SeamlessM4TModel" else {}
    right = module.generate(**inputs, tgt_lang="fra", num_beams=1, do_sample=False, max_new_tokens=12, **how)
    wrong = module.generate(**inputs, tgt_lang="deu", num_beams=1, do_sample=False, max_new_tokens=12, **how)
    texts = [own.batch_decode(getattr(each, "sequences", each), skip_special_tokens=True)[0] for each in (right, wrong)]
    assert texts[0] != texts[1]
    assert texts[0].startswith(translate(model, ["a b cats"], beams=1, max_ratio=0.1)[0])
    labels = torch.tensor([target])
    reads, predicts = decoder_inputs(model, labels)
    assert reads.tolist() == [[end, fra, *words]]  # as the model's own generation begins
    assert predicts.tolist() == [[fra, *words, end]]


def test_seamless_refuses_what_it_does_not_write(capsys):
    tokenizer = seamless_tokenizer()
    module = seamless(tokenizer, "SeamlessM4TForTextToText", writes=("fra",))
    with pytest.raises(
        UserError,
        match=r"reads deu but does not write it\. Choose a language for --target-language that it writes: fra\.",
    ):
        load_model(module, tokenizer, target_language="deu")
    with pytest.raises(UserError, match="must be one of the 3 language codes"):
        load_model(module, tokenizer, source_language="de")
    module.generation_config.text_decoder_lang_to_code_id = {"fra": 5}
    with pytest.raises(UserError, match="marks fra by token 5, but its tokenizer by"):
        load_model(module, tokenizer, target_language="fra")
    with use_display(make_display("plain")):
        load_model(seamless(tokenizer, "SeamlessM4TForTextToText"), tokenizer)
    said = " ".join("".join(capsys.readouterr()).split())
    assert "reads every text as eng, the default" in said
    assert "writes fra, the default of its tokenizer" in said


def test_a_language_that_is_assumed_is_noted_once(capsys):
    tokenizer = tokenizer_of("nllb")
    with use_display(make_display("plain")):
        model = load_model(module_of(tokenizer, "nllb"), tokenizer)
        load_model(model.module, model.tokenizer)
    text = " ".join("".join(capsys.readouterr()).split())
    assert text.count("reads every text as eng_Latn") == text.count("--target-language") == 1


def test_a_code_that_is_not_known_is_refused_with_those_near_it():
    tokenizer = tokenizer_of("nllb")
    with pytest.raises(UserError, match=r'--source-language must be one of the 202.*Got "fr". Similar:.*fra_Latn'):
        load_model(module_of(tokenizer, "nllb"), tokenizer, source_language="fr")
    with pytest.raises(UserError, match="--target-language must be one of"):
        load_model(module_of(tokenizer, "nllb"), tokenizer, target_language="German")


def slow_tokenizer(family, folder):
    """Of M2M100, or of a Marian model of two target languages: these classes encode in Python."""
    model = str(folder / "pieces")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 20),
        model_prefix=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    known = [pieces.id_to_piece(number) for number in range(3, len(pieces))]
    begin = ["<s>", "<pad>", "</s>", "<unk>", *([">>fra<<", ">>deu<<"] if family == "marian" else [])]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({piece: at for at, piece in enumerate([*begin, *known])}))
    if family == "marian":
        return transformers.MarianTokenizer(f"{model}.model", f"{model}.model", str(vocabulary))
    return transformers.M2M100Tokenizer(str(vocabulary), f"{model}.model")


def test_marks_of_m2m100_are_no_words(tmp_path):
    tokenizer = slow_tokenizer("m2m100", tmp_path)
    vocabulary = tokenizer.vocab_size + len(tokenizer.lang_code_to_id)
    module = module_of(range(vocabulary), "nllb")
    model = load_model(module, tokenizer, source_language="fr", target_language="de")
    own = slow_tokenizer("m2m100", tmp_path)
    own.src_lang, own.tgt_lang = "fr", "de"
    assert model.tokenizer("a b cats")["input_ids"] == own("a b cats")["input_ids"]
    assert model.tokenizer(text_target="a b")["input_ids"] == own(text_target="a b")["input_ids"]
    encoded = Corpus.from_sentences(["a b cats"]).encode(model.tokenizer)
    assert encoded.flat_special.tolist() == [True, *[False] * (len(encoded.flat_ids) - 2), True]
    assert len(model.tokenizer) == vocabulary  # tables count tokens up to there
    assert "__" not in translate(model, ["a b cats"], beams=1)[0]
    with pytest.raises(UserError, match=r"--prefix is for models .* use --source-language and --target-language"):
        load_model(module, tokenizer, prefix="translate:")


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_texts_of_a_marian_model_of_several_languages_say_the_language_themselves(tmp_path, capsys):
    tokenizer = slow_tokenizer("marian", tmp_path)
    module = module_of(tokenizer, "nllb")
    with use_display(make_display("plain")):
        load_model(module, tokenizer)
    assert 'each text must start with a language code: ">>deu<<", ">>fra<<".' in " ".join(
        "".join(capsys.readouterr()).split()
    )
    encoded = Corpus.from_sentences([">>fra<< a b"]).encode(tokenizer)
    assert encoded.flat_ids[0] == tokenizer.convert_tokens_to_ids(">>fra<<")
    assert encoded.flat_special.tolist() == [True, *[False] * (len(encoded.flat_ids) - 2), True]
    with pytest.raises(UserError, match="Start each with one of"):
        load_model(module, tokenizer, target_language="fra")


def t5():
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    pieces += [(f"▁{word}", -1.0) for word in WORDS] + [(sign, -3.0) for sign in SIGNS]
    tokenizer = transformers.T5Tokenizer(vocab=pieces, extra_ids=0)
    sizes = {"d_model": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    config = transformers.T5Config(vocab_size=len(tokenizer), **sizes, **ids)
    return transformers.T5ForConditionalGeneration(config), tokenizer


def test_a_prefix_stands_before_what_is_read_and_not_before_what_is_written(tmp_path):
    module, tokenizer = t5()
    model = load_model(module, tokenizer, prefix="translate a :")
    read = model.tokenizer("Das Haus", return_special_tokens_mask=True)
    assert read["input_ids"] == tokenizer("translate a : Das Haus")["input_ids"]
    assert read["special_tokens_mask"] == [1, 1, 1, 0, 0, 1]
    assert model.target_tokenizer("Das")["input_ids"] == tokenizer("Das")["input_ids"]
    module.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    model.target_tokenizer.save_pretrained(tmp_path / "target_tokenizer")
    again = load_model(tmp_path)
    assert again.tokenizer("Das Haus")["input_ids"] == read["input_ids"]
    assert again.target_tokenizer("Das")["input_ids"] == tokenizer("Das")["input_ids"]
    with pytest.raises(UserError, match="marks none"):
        load_model(module, tokenizer, source_language="de")


def test_a_prefix_that_the_configuration_names_is_noted_where_none_was_given(capsys):
    module, tokenizer = t5()
    module.config.task_specific_params = {"translation": {"prefix": "translate a : "}, "other": {"max_length": 3}}
    with use_display(make_display("plain")):
        load_model(module, tokenizer)
        load_model(module, tokenizer, prefix="translate a :")
    assert " ".join("".join(capsys.readouterr()).split()).count("Texts are read without one") == 1


def test_a_prefix_before_the_texts_of_a_byte_level_tokenizer():
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=330, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator([" ".join((*WORDS, "query: a"))] * 5, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")
    config = transformers.GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = load_model(transformers.GPT2LMHeadModel(config), tokenizer, prefix="query: ")
    assert model.tokenizer("Das Haus")["input_ids"] == tokenizer("query: Das Haus")["input_ids"]
    assert model.target_tokenizer is None
