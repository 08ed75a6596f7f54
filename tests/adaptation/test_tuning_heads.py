"""What tuning did to heads: each number once more, slowly."""

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_before, toy_corpus, toy_data

from infoflow.adaptation import tuning_heads
from infoflow.flow import measure
from infoflow.heads import (
    Confidence,
    PositionalScores,
    RareTokenScores,
    SurfaceStatistics,
    ablate,
    ablation,
    head_roles,
    js_distance,
)
from infoflow.objectives import Vocabulary
from infoflow.training import TrainingData


@pytest.fixture(scope="module")
def table(tuned):
    return tuning_heads(
        toy_before(), tuned, ToyTask(), toy_data().test, pretraining=toy_corpus(30, 5), costs_on=1000, sentences=1000
    )


def attention_of(model, text):
    ids = torch.tensor([model.tokenizer.encode(text)])
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.stack(model.module.base_model(input_ids=ids, output_attentions=True).attentions)


def test_divergence_is_that_between_heads_text_by_text(tuned, table):
    sums, queries = np.zeros((3, 2)), 0
    for sentence in toy_data().test:
        before = attention_of(toy_before(), sentence.text)
        num = before.shape[-1]
        queries += num
        for one in tuned:
            both = torch.cat([before, attention_of(one, sentence.text)], dim=2)  # heads of both models
            for layer in range(3):
                found = js_distance(both[layer : layer + 1], torch.ones(1, num, dtype=torch.bool))
                sums[layer] += [float(found[0, 2]) / 2, float(found[1, 3]) / 2]
    np.testing.assert_allclose(table["js"].astype(float), (sums / queries).ravel(), rtol=1e-4, atol=1e-7)
    assert (table.js_low <= table.js).all()
    assert (table.js <= table.js_high).all()
    assert (table.js > 0).any()


def test_cost_is_the_loss_without_the_head_less_with_it(tuned, table):
    test, task = toy_data().test, ToyTask()
    vocabulary = Vocabulary.from_tokenizer(tuned[0].tokenizer)
    examples = TrainingData(source=task.rows(test, tuned[0].tokenizer, 512), vocabulary=vocabulary)
    batch = examples.batch(task, np.arange(len(test)), ("test",), 0)

    def loss(model):
        with torch.no_grad():
            return float(task.example_losses(model.module, batch).mean(dtype=torch.float64))

    for row in table.to_dict("records"):
        head = (row["stack"], row["kind"], row["layer"], row["head"])
        rises = []
        for one in tuned:
            whole = loss(one)
            with ablate(one, [head]):
                rises.append(loss(one) - whole)
        assert row["value"] == pytest.approx(np.mean(rises), abs=1e-6)
        assert row["count"] == len(test)


def test_confidence_and_roles_are_those_of_their_measures(tuned, table):
    measures = [Confidence(), PositionalScores(offsets=(-2, -1, 1, 2)), SurfaceStatistics(), RareTokenScores()]
    tables = [measure(one, toy_data().test, measures) for one in (toy_before(), *tuned)]
    confidence = [one["head_confidence"]["value"].to_numpy(float) for one in tables]
    np.testing.assert_allclose(table["confidence_before"].astype(float), confidence[0])
    np.testing.assert_allclose(table["confidence_after"].astype(float), np.mean(confidence[1:], axis=0))
    for column, chosen, least in (("role_before", tables[:1], 1), ("role_after", tables[1:], 1)):
        for row in table.to_dict("records"):
            held = [
                set(roles[roles.holds & (roles.layer == row["layer"]) & (roles["head"] == row["head"])].role)
                for roles in map(head_roles, chosen)
            ]
            wanted = {role for roles in held for role in roles if sum(role in each for each in held) >= least}
            assert set(filter(None, row[column].split(", "))) == wanted


def test_cost_before_is_that_of_the_pretraining_loss(table):
    slow = ablation(toy_before(), toy_corpus(30, 5), others=False)
    np.testing.assert_allclose(table["cost_before"].astype(float), slow["value"].astype(float), atol=1e-6)


def test_without_pretraining_text_nothing_is_said_of_it(tuned):
    table = tuning_heads(toy_before(), tuned[:1], ToyTask(), toy_data().test, costs_on=10)
    assert table["cost_before"].isna().all()
    assert (table["count"] == 10).all()
