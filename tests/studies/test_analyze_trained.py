"""A model that infoflow trained is analysed with the noise of its own training, which its folder tells."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from infoflow.corpus import Vocabulary, generate_grammar, load_corpus, train_tokenizer
from infoflow.flow import PassOptions, measure
from infoflow.models import load_model
from infoflow.objectives import AbstractObjective, CausalLM, MaskedLM
from infoflow.studies import AnalysisPlan, AnalyzeOptions, analyze, standard_measures
from infoflow.training import ModelConfig, TrainConfig, TrainingData, build_models, train, trained_objective

TABLE = "head_importance"
SETTINGS = AnalysisPlan(importance_sentences=20, tables=(TABLE,))
CORPUS = "grammar:80"


def trained(objective: AbstractObjective, out: Path) -> Path:
    corpus = generate_grammar(200)
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=80)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    data = TrainingData(source=corpus.encode(tokenizer), vocabulary=vocabulary, tokenizer=tokenizer)
    shape = ModelConfig(width=16, layers=2, heads=2, feedforward=32, initializer_range=0.1)
    module = build_models([objective], shape, vocabulary)[objective.name]
    return train(objective, TrainConfig(updates=2, device="cpu"), data, module, out).model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return trained(MaskedLM(rate=0.6, mask_share=1.0, random_share=0.0), tmp_path_factory.mktemp("trained"))


def analysed(folder: Path, out: Path) -> pd.DataFrame:
    options = AnalyzeOptions(corpus=CORPUS, sentences=0, control=False, only=(TABLE,), measures=SETTINGS)
    return analyze([str(folder)], options, out).tables[TABLE]


def measured(folder: Path, corruption: AbstractObjective | None) -> pd.DataFrame:
    chosen = [each for each in standard_measures(SETTINGS) if each.name == TABLE]
    options = PassOptions(tokens_per_batch=SETTINGS.tokens_per_batch, corruption=corruption)
    return measure(load_model(folder), load_corpus(CORPUS), chosen, options)[TABLE]


def test_its_own_rate_is_taken(folder: Path, tmp_path: Path) -> None:
    own, values = trained_objective(folder), analysed(folder, tmp_path / "own")["value"]
    assert own == MaskedLM(rate=0.6, mask_share=1.0, random_share=0.0)
    assert values.tolist() == measured(folder, own)["value"].tolist()
    assert values.tolist() != measured(folder, None)["value"].tolist()


def test_a_folder_that_says_nothing_is_taken_for_a_plain_masked_lm(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    shutil.copytree(folder, plain)
    (plain / "training.json").unlink()
    assert trained_objective(plain) is None
    assert analysed(plain, tmp_path / "run")["value"].tolist() == measured(plain, None)["value"].tolist()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": {"objective": 3}}', '{"key": []}', "[" * 100_000])
def test_what_damage_left_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    assert trained_objective(tmp_path) is None


def test_an_objective_of_another_version_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(json.dumps({"key": {"objective": "masked-lm", "objective depth": 3}}))
    with pytest.warns(UserWarning, match="masked-lm has no option depth"):
        assert trained_objective(tmp_path) is None


def test_objectives_without_options_are_read_too(tmp_path: Path) -> None:
    assert trained_objective(trained(CausalLM(), tmp_path)) == CausalLM()
