"""Tuned folders as plain transformers reads them: without infoflow, and without knowing how they were tuned."""

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from adaptation.questions import own_tokenizer, town_questions
from adaptation.small_task import WORDS, small_model

from infoflow.adaptation import TaskData, TuneConfig, load_task, tune
from infoflow.corpus import Corpus, Vocabulary
from infoflow.models import load_model
from infoflow.training import TrainingData

pytestmark = pytest.mark.slow

_TUNING = {"epochs": 2, "head_epochs": 2, "batch_examples": 16, "learning_rates": (1e-2,), "seeds": (0,)}


def similar(num: int = 80) -> TaskData:
    """Pairs of texts, and 1990 plus how many words they share: a small number beside a large one."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(num):
        first, second = (generator.choice(WORDS[:6], 4) for _ in range(2))
        shared = len({*first} & {*second})
        rows.append({"text": " ".join(first), "second": " ".join(second), "label": str(1990.5 + shared)})
    frame = pd.DataFrame(rows)
    parts = {"train": frame[: num // 2], "dev": frame[num // 2 : 3 * num // 4], "test": frame[3 * num // 4 :]}
    corpora = {
        part: Corpus.from_frame(chosen, text="text", second="second", label="label", name=part)
        for part, chosen in parts.items()
    }
    return TaskData(name="similar", shape="regression", **corpora)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert", "albert", "bart", "t5"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_regression_answers_in_the_unit_of_its_labels(family, method, tmp_path):
    data = similar()
    tuned = tune(small_model(family), data, TuneConfig(method=method, **_TUNING), tmp_path)
    (one,) = tuned.models
    assert type(one.task).__name__ == "SettledRegression"
    said = _numbers(one.folder, data)
    assert np.abs(said - 1990.5).max() < 10
    assert said == pytest.approx(tuned.answers["probability"], abs=1e-3)
    (again, *_), kept = one.score(data.test, data.train), tuned.scores.query("part == 'test' and main")
    assert again.row["value"] == pytest.approx(kept["value"].item(), abs=1e-3)
    losses = ((said - np.array([float(label) for label in data.test.column("label")])) / one.task.deviation) ** 2
    assert _losses(one, data) == pytest.approx(losses, abs=1e-2)


def test_a_head_without_a_bias_keeps_its_own_unit(tmp_path):
    data = similar()
    tuned = tune(small_model("gpt2"), data, TuneConfig(**_TUNING), tmp_path)
    (one,) = tuned.models
    assert type(one.task).__name__ == "Regression"
    said = one.task.mean + one.task.deviation * _numbers(one.folder, data)
    assert said == pytest.approx(tuned.answers["probability"], abs=1e-3)


def test_passages_are_read_with_the_segments_of_training(tmp_path):
    corpus = town_questions(24, facts=2)
    tokenizer = own_tokenizer(corpus)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = load_model(transformers.BertForMaskedLM(config), tokenizer=tokenizer)
    assert "token_type_ids" not in tokenizer("a", "b")
    test = town_questions(10, facts=2, seed=1)
    data = load_task("towns", train=corpus, dev=test, test=test)
    (one,) = tune(model, data, TuneConfig(**_TUNING, max_length=48), tmp_path).models
    assert "token_type_ids" not in tokenizer("a", "b")
    plain = transformers.AutoTokenizer.from_pretrained(one.folder)
    for sentence, window in zip(test, one.task.rows(test, tokenizer, 48).windows, strict=True):
        given = plain(sentence.question, sentence.text)
        assert given["input_ids"] == window.input_ids.tolist()
        assert given["token_type_ids"] == window.segments.tolist()
        assert set(given["token_type_ids"]) == {0, 1}


def _numbers(folder, data) -> np.ndarray:
    """What a reader of the Hugging Face folder alone is told of the test part, in the order of the answers."""
    module = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts, seconds = (list(data.test.column(name)) for name in ("text", "second"))
    with torch.no_grad():
        return np.array(
            [float(module(**tokenizer(a, b, return_tensors="pt")).logits) for a, b in zip(texts, seconds, strict=True)]
        )


def _losses(one, data) -> np.ndarray:
    """What infoflow takes for the loss of each example of the test part: in variances of training's labels."""
    model = one.load("cpu")
    tokenizer = model.require_tokenizer()
    rows = one.task.rows(data.test, tokenizer, one.max_length)
    training = TrainingData(source=rows, vocabulary=Vocabulary.from_tokenizer(tokenizer))
    batch = training.batch(one.task, np.arange(len(data.test)), ("x",), 0)
    with torch.no_grad():
        return one.task.example_losses(model.module, batch).numpy()
