"""Further pretraining: of a study's models and of others, exact across an interruption, refused where nothing fits."""

import copy
import dataclasses
import json
import shutil

import pytest
import torch
import transformers
from transformers import AutoModelForMaskedLM, AutoTokenizer

from infoflow.adaptation import check_fits
from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.objectives import Bart
from infoflow.studies import StudyPlan
from infoflow.subjects.adaptation.stages import train_further

PLAN = {
    "objectives": ["masked-lm", "causal-lm", "translation", "span-corruption"],
    "corpus": {"name": "grammar:400", "validation": 0.1, "test": 0.2, "vocabulary": 150},
    "model": {"positions": 48},
    "training": {"updates": 6, "batch_tokens": 256, "save_every": 2, "learning_rate": 1e-3},
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(generate_grammar(300).column("text"), 130, sentinels=30)


@pytest.fixture
def parent(tokenizer, tmp_path):
    """Write a tiny model of a class with random weights, and its tokenizer; returns the folder."""

    def make(name):
        size = {"vocab_size": len(tokenizer), "pad_token_id": 0}
        small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
        bert = transformers.BertConfig(**size, **small, max_position_embeddings=64)
        decoder = transformers.BertConfig(**size, **small, is_decoder=True, add_cross_attention=True)
        configs = {
            "BertForMaskedLM": bert,
            "RobertaForMaskedLM": transformers.RobertaConfig(**size, **small, max_position_embeddings=64),
            "GPT2LMHeadModel": transformers.GPT2Config(**size, n_embd=16, n_layer=1, n_head=2, n_positions=64),
            "LlamaForCausalLM": transformers.LlamaConfig(**size, **small, num_key_value_heads=2),
            "T5ForConditionalGeneration": transformers.T5Config(
                **size, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, decoder_start_token_id=0
            ),
            "BartForConditionalGeneration": transformers.BartConfig(
                **size,
                **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
                **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
                **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24),
                d_model=16,
                max_position_embeddings=64,
            ),
            "EncoderDecoderModel": transformers.EncoderDecoderConfig.from_encoder_decoder_configs(bert, decoder),
        }
        torch.manual_seed(1)
        model = getattr(transformers, name)(configs[name])
        if name == "EncoderDecoderModel":
            model.config.decoder_start_token_id, model.config.pad_token_id = 2, 0
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


@pytest.mark.parametrize(
    ("objective", "kind"),
    [
        ("masked-lm", "BertForMaskedLM"),
        ("causal-lm", "GPT2LMHeadModel"),
        ("causal-lm", "LlamaForCausalLM"),
        ("span-corruption", "T5ForConditionalGeneration"),
        ("translation", "EncoderDecoderModel"),
    ],
)
def test_any_model_that_fits_is_trained_on(objective, kind, parent, tmp_path) -> None:
    before = parent(kind)
    done = train_further(objective, before, StudyPlan.from_json(PLAN), out=tmp_path / "out")
    first, last = load_model(before), load_model(done.folder)
    assert type(last.module).__name__ == kind
    assert json.loads((done.folder / "training.json").read_text())["key"]["parent"] == first.digest
    assert done.facts["updates"] == 6
    assert len(AutoTokenizer.from_pretrained(done.folder)) == 130
    moved = [not torch.equal(a, b) for a, b in zip(first.module.parameters(), last.module.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2


@pytest.mark.parametrize("new_tokens", [0, 5])
def test_a_model_beside_two_tokenizers_goes_on_with_text_alone(new_tokens, parent, tokenizer, tmp_path) -> None:
    """As a study leaves its masked LM where another of its objectives translates."""
    before, text = parent("BertForMaskedLM"), tmp_path / "text.txt"
    tokenizer.save_pretrained(before / "target_tokenizer")
    text.write_text("\n".join(generate_grammar(200).column("text")) + "\n")
    corpus = {**PLAN["corpus"], "name": str(text)}
    alone = StudyPlan.from_json({**PLAN, "objectives": ["masked-lm"], "corpus": corpus})
    done = train_further("masked-lm", before, alone, out=tmp_path / "out", new_tokens=new_tokens)
    assert done.facts["updates"] == 6
    assert not (done.folder / "target_tokenizer").exists()
    writer = parent("EncoderDecoderModel")
    with pytest.raises(UserError, match="needs a parallel corpus"):
        train_further(
            "translation", writer, dataclasses.replace(alone, objectives=("translation",)), out=tmp_path / "no"
        )


def test_an_interrupted_training_ends_with_the_same_weights_and_phases_follow_each_other(parent, tmp_path) -> None:
    before, plan = parent("BertForMaskedLM"), StudyPlan.from_json(PLAN)
    whole = train_further("masked-lm", before, plan, out=tmp_path / "whole", new_tokens=12).folder
    weights = (whole / "model.safetensors").read_bytes()
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    shutil.rmtree(cut / "model")
    shutil.rmtree(cut / "checkpoints" / "step-00000006")
    (cut / "checkpoints" / "latest").write_text("step-00000004")
    again = train_further("masked-lm", before, plan, out=cut, new_tokens=12).folder
    assert (again / "model.safetensors").read_bytes() == weights
    model = AutoModelForMaskedLM.from_pretrained(again)
    assert model.config.vocab_size == 142

    second = train_further("masked-lm", again, plan, out=tmp_path / "second")
    assert json.loads((second.folder / "training.json").read_text())["key"]["parent"] == load_model(again).digest
    assert second.facts["parameters"] == sum(p.numel() for p in model.parameters())


def test_another_parent_is_refused_in_the_same_folder(parent, tmp_path) -> None:
    plan, first = StudyPlan.from_json(PLAN), parent("BertForMaskedLM")
    done = train_further("masked-lm", first, plan, out=tmp_path / "out").folder
    shutil.copytree(done, tmp_path / "other")
    with pytest.raises(UserError, match=r"holds a run with other settings: parent was"):
        train_further("masked-lm", tmp_path / "other", plan, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("objective", "kind", "message"),
    [
        ("causal-lm", "BertForMaskedLM", r"causal-lm trains a decoder .* is a BertForMaskedLM\.\n.*: masked-lm\."),
        ("masked-lm", "GPT2LMHeadModel", r"masked-lm trains an encoder .* is a GPT2LMHeadModel\.\n.*: causal-lm\."),
        ("translation", "GPT2LMHeadModel", r"translation trains an encoder and a decoder"),
        (
            "translation",
            "BartForConditionalGeneration",
            r"an EncoderDecoderModel or a T5ForConditionalGeneration\. .* is a BartForConditionalGeneration\.\n"
            r"Start from one of these classes: no objective fits this one\.",
        ),
        ("masked-lm", "EncoderDecoderModel", r"objective that fits: translation, prefix-lm, bart, mass\."),
        ("electra", "BertForMaskedLM", r"electra trains several models"),
    ],
)
def test_what_does_not_fit_is_refused(objective, kind, message, parent, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        train_further(objective, parent(kind), StudyPlan.from_json(PLAN), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("objective", "kind", "else_"),
    [
        ("bart", "EncoderDecoderModel", r", or choose an objective that fits: translation, prefix-lm\.$"),
        ("mass", "EncoderDecoderModel", r", or choose an objective that fits: translation, prefix-lm\.$"),
        ("masked-lm", "BertForMaskedLM", r": no objective fits this one\.$"),
    ],
)
def test_a_model_without_a_mask_token_is_refused_where_one_is_needed(
    objective, kind, else_, parent, tokenizer, tmp_path
) -> None:
    before, unmasked = parent(kind), copy.deepcopy(tokenizer)
    unmasked.mask_token = None
    unmasked.save_pretrained(before)
    message = rf"^{objective} needs a mask token\. The tokenizer of {kind} has none\.\nStart from a model .*"
    with pytest.raises(UserError, match=message + else_):
        train_further(objective, before, StudyPlan.from_json(PLAN), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sentences_change_places_without_a_mask_token(parent, tokenizer) -> None:
    before, unmasked = parent("EncoderDecoderModel"), copy.deepcopy(tokenizer)
    unmasked.mask_token = None
    unmasked.save_pretrained(before)
    model = load_model(before, device="cpu")
    check_fits(Bart(mask=0.0), model, 48)
    for one in (Bart(), Bart(mask=0.0, insert=0.1)):
        with pytest.raises(UserError, match="bart needs a mask token"):
            check_fits(one, model, 48)
