"""The distance between a layer's space before and after tuning, word by word as the papers write it."""

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_before, toy_data
from transformers import BertForMaskedLM

from infoflow.adaptation import InsideSizes, inside_view
from infoflow.flow import PassOptions
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.representations import linear_cka, pwcca, rsa


def tuning_change(before, after, options=None, **sizes):
    sizes = InsideSizes(**{"label_texts": 10_000, **sizes})
    view = inside_view(before, after, ToyTask(), toy_data(), options=options, sizes=sizes, only=["tuning_change"])
    return view["tuning_change"]


def states_one_by_one(model, corpus):
    """(word, state, width) of all text tokens, each text alone."""
    tokenizer, found = model.tokenizer, []
    for sentence in corpus:
        ids = torch.tensor([tokenizer.encode(sentence.text)])
        with torch.no_grad():
            hidden = model.module.base_model(input_ids=ids, output_hidden_states=True).hidden_states
        found.append(torch.stack(hidden, dim=2)[0, 1:-1])
    return torch.cat(found)


@pytest.fixture(scope="module")
def table(tuned):
    return tuning_change(toy_before(), tuned, items=10_000)


@pytest.mark.parametrize("measure", ["pwcca", "cka", "rsa"])
def test_distances_are_those_of_the_definitions(tuned, table, measure):
    similarity = {
        "pwcca": pwcca,
        "cka": lambda x, y: linear_cka(x, y, debiased=True),
        "rsa": lambda x, y: rsa(x, y, "cosine"),
    }[measure]
    test = toy_data().test
    before, first, second = (states_one_by_one(model, test) for model in (toy_before(), *tuned))
    for layer in range(4):
        row = table[(table.measure == measure) & (table.layer == layer)].iloc[0]
        each = [similarity(before[:, layer], one[:, layer]) for one in (first, second)]
        assert row["value"] == pytest.approx(1 - np.mean(each), abs=2e-5)
        assert row["baseline"] == pytest.approx(1 - similarity(first[:, layer], second[:, layer]), abs=2e-5)
        assert row["count"] == len(before)
        assert row["low"] <= row["value"] <= row["high"]


def test_batches_do_not_matter(tuned, table):
    small = tuning_change(toy_before(), tuned, PassOptions(tokens_per_batch=40), items=10_000)
    np.testing.assert_allclose(small["value"].astype(float), table["value"].astype(float), atol=1e-4)


def test_what_was_not_tuned_has_not_moved():
    table = tuning_change(toy_before(), [toy_before()])
    np.testing.assert_allclose(table["value"].astype(float), 0, atol=1e-6)
    assert table["baseline"].isna().all()  # of one seed there is no noise to compare with


def test_another_body_is_refused():
    from adaptation.toy_task import toy_config, toy_tokenizer

    other = load_model(BertForMaskedLM(toy_config(hidden_size=32)), tokenizer=toy_tokenizer())
    with pytest.raises(UserError, match="compared with its pretrained model"):
        tuning_change(toy_before(), [other])
