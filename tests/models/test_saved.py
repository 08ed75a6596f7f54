"""Folders that plain transformers loads: every class that infoflow trains, and a translator's one tokenizer."""

from pathlib import Path

import pytest
import torch
from support.plain import run_card
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from infoflow.architectures import FAMILIES
from infoflow.corpus import train_tokenizer
from infoflow.models import load_model, save_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.training import ModelConfig, build_models

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32)
ENGLISH = [f"the {noun} {verb} ." for noun in ("cat", "dog", "bird", "horse") for verb in ("sleeps", "eats", "sings")]
FRENCH = [f"{noun} {verb} !" for noun in ("le chat", "le chien", "l'oiseau", "le cheval") for verb in ("dort", "mange")]


def tokenizers(english: int = 60, french: int = 55, sentinels: int = 0):
    source = train_tokenizer(ENGLISH, english, min_frequency=1, sentinels=sentinels)
    return source, train_tokenizer(FRENCH, french, min_frequency=1)


def saved(source, target, folder: Path) -> Path:
    vocabularies = Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target)
    module = build_models([make_objective("translation")], SHAPE, *vocabularies)["translation"].eval()
    save_model(module, folder, source, target)
    return folder


@pytest.mark.parametrize(("english", "french", "sentinels"), [(60, 55, 0), (45, 60, 0), (60, 60, 10)])
def test_one_tokenizer_reads_one_language_and_writes_the_other(english, french, sentinels, tmp_path) -> None:
    source, target = tokenizers(english, french, sentinels)
    both = AutoTokenizer.from_pretrained(saved(source, target, tmp_path / "one"))
    both.save_pretrained(tmp_path / "two")
    for tokenizer in (both, AutoTokenizer.from_pretrained(tmp_path / "two")):
        texts = [*ENGLISH, "odd \ue000 signs ▁ [MASK] x", "<extra_id_3> the cat"]
        assert tokenizer(texts)["input_ids"] == source(texts)["input_ids"]
        rows = [*target([*FRENCH, "l' [SEP] le"])["input_ids"], list(range(len(target))), [0, 0, 9, 4, 1, 5]]
        for skip in (True, False):
            expected = target.batch_decode(rows, skip_special_tokens=skip)
            assert tokenizer.batch_decode(rows, skip_special_tokens=skip) == expected


def test_one_vocabulary_needs_no_second_decoder(tmp_path) -> None:
    source, _ = tokenizers()
    folder = saved(source, tokenizers()[0], tmp_path / "one")
    assert not (folder / "source_tokenizer").exists()


def test_a_translator_is_read_by_both(tmp_path: Path) -> None:
    source, target = tokenizers()
    vocabularies = Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target)
    module = build_models([make_objective("translation")], SHAPE, *vocabularies)["translation"].eval()
    save_model(module, tmp_path, source, target)
    plain, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    loaded = load_model(tmp_path)
    assert loaded.digest == load_model(module, tokenizer=source).digest
    assert loaded.tokenizer is not None
    assert loaded.target_tokenizer is not None
    assert loaded.tokenizer.decode([9, 10]) == source.decode([9, 10])
    assert load_model(tmp_path, tokenizer=tmp_path).tokenizer.decode([9, 10]) == source.decode([9, 10])
    ids = plain.generate(**AutoTokenizer.from_pretrained(tmp_path)(ENGLISH[0], return_tensors="pt"), max_new_tokens=5)
    assert torch.equal(ids, loaded.module.generate(**source(ENGLISH[0], return_tensors="pt"), max_new_tokens=5))
    assert AutoTokenizer.from_pretrained(tmp_path).decode(ids[0]) == target.decode(ids[0])


def test_an_encoder_without_a_pooler_is_read_without_a_report(tmp_path: Path) -> None:
    source, _ = tokenizers()
    body = build_models([make_objective("masked-lm")], SHAPE, Vocabulary.from_tokenizer(source))["masked-lm"].bert
    save_model(body.eval(), tmp_path, source)
    plain, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    inputs = source(ENGLISH, return_tensors="pt", padding=True)
    with torch.no_grad():
        assert torch.equal(plain.eval()(**inputs)[0], body(**inputs)[0])
    assert load_model(tmp_path).digest == load_model(body, tokenizer=source).digest


OBJECTIVES = ("masked-lm", "causal-lm", "translation", "electra", "skip-gram", "bilm")
CASES = [
    (family, objective)
    for family, built in FAMILIES.items()
    for objective in OBJECTIVES
    if make_objective(objective).layout in built.layouts and (family, objective) != ("t5", "translation")
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), CASES)
def test_cards_run_without_infoflow(family: str, name: str, tmp_path: Path) -> None:
    source, target = tokenizers()
    vocabularies = Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target)
    objective = make_objective(name)
    module = build_models([objective], SHAPE, *vocabularies, family=family)[name]
    save_model(objective.exported(module), tmp_path, source, target if objective.needs_translation else None)
    run_card(tmp_path, needs_infoflow=family in ("plain-bert", "elmo") or name == "skip-gram")
