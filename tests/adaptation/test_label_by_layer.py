"""Where the label can be read: with scikit-learn's probe, and information counted by hand."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_before, toy_data, toy_tokenizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from infoflow.adaptation import inside_view

pytestmark = pytest.mark.slow


def label_by_layer(*models_and_task, **options):
    return inside_view(*models_and_task, toy_data(), only=["label_by_layer"], **options)["label_by_layer"]


@pytest.fixture(scope="module")
def table(tuned):
    return label_by_layer(toy_before(), tuned, ToyTask(), untrained=toy_before(5))


def means_one_by_one(model, corpus):
    """(text, state, width)"""
    found = []
    for sentence in corpus:
        ids = torch.tensor([model.tokenizer.encode(sentence.text)])
        with torch.no_grad():
            hidden = model.module.base_model(input_ids=ids, output_hidden_states=True).hidden_states
        found.append(torch.stack(hidden, dim=2)[0, 1:-1].mean(0))
    return torch.stack(found).numpy()


def test_accuracies_are_near_those_of_another_linear_classifier(tuned, table):
    data, labels = toy_data(), ("bad", "good")
    train, test = ([labels.index(s.label) for s in part] for part in (data.train, data.test))
    majority = np.mean(np.array(test) == Counter(train).most_common(1)[0][0])
    for name, models in (("before", [toy_before()]), ("after", tuned)):
        for layer in range(4):
            row = table[(table.state == name) & (table.layer == layer) & (table.metric == "accuracy")].iloc[0]
            each = []
            for model in models:
                x, y = (means_one_by_one(model, part)[:, layer] for part in (data.train, data.test))
                scaler = StandardScaler().fit(x)
                each.append(
                    LogisticRegression(max_iter=500).fit(scaler.transform(x), train).score(scaler.transform(y), test)
                )
            assert row["value"] == pytest.approx(np.mean(each), abs=0.2)
            assert row["baseline"] == pytest.approx(majority)
            assert row["count"] == len(test)
    last = table[(table.state == "after") & (table.layer == 3) & (table.metric == "accuracy")].iloc[0]
    assert last["value"] > 0.85  # tuning learned the task, and the top layer says so


def test_information_of_a_perfect_layer_is_the_entropy_of_the_label(table):
    after = table[(table.state == "after") & (table.metric == "information") & (table.layer == 3)].iloc[0]
    before = table[(table.state == "before") & (table.metric == "information") & (table.layer == 3)].iloc[0]
    assert before["value"] < after["value"] <= math.log(2) + 0.1
    assert abs(after["baseline"]) < 0.15
    assert set(table.state) == {"before", "after", "untrained"}
    assert "information about the output" not in set(table.metric)  # it sees both sides


def test_tagged_words_are_asked_one_by_one():
    data, tokenizer = toy_data(), toy_tokenizer()
    telling = tuple(
        {i for word in ("good", "nice", "fine", "poor", "sad", "bad") for i in tokenizer.encode(word)[1:-1]}
    )
    task = ToyTask(shape="tagging", labels=("other", "telling"), telling=telling)
    table = label_by_layer(toy_before(), [toy_before()], task)
    words = sum(len(tokenizer.encode(s.text)) - 2 for s in data.test)
    accuracy = table[table.metric == "accuracy"]
    assert (accuracy["count"] == words).all()
    each = {}
    for name, part in (("train", data.train), ("test", data.test)):
        states, tags = [], []
        for sentence in part:
            ids = torch.tensor([tokenizer.encode(sentence.text)])
            with torch.no_grad():
                states.append(toy_before().module.base_model(ids, output_hidden_states=True).hidden_states[0][0, 1:-1])
            tags.append(np.isin(ids[0, 1:-1], telling))
        each[name] = torch.cat(states).numpy(), np.concatenate(tags)
    slow = LogisticRegression(max_iter=500).fit(*each["train"]).score(*each["test"])
    majority = max(1 - each["test"][1].mean(), each["test"][1].mean())
    assert majority + 0.05 < slow  # which token it is stands in the embeddings
    first = accuracy[(accuracy.layer == 0) & (accuracy.state == "before")].iloc[0]
    assert first["value"] == pytest.approx(slow, abs=0.05)
    assert first["baseline"] == pytest.approx(majority)
