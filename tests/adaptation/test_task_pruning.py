"""Heads taken away, by cutting them out of the weights; and whether two tasks need the same ones."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_data, toy_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from infoflow.adaptation import head_overlap, task_pruning
from infoflow.foundation import UserError
from infoflow.heads import expected_jaccard
from infoflow.models import load_model
from infoflow.objectives import Vocabulary
from infoflow.training import TrainingData


def accuracy_without(model, heads):
    """Of the model whose heads' columns of the output matrix are 0."""
    module = copy.deepcopy(model.module)
    for _, _, layer, head in heads:
        module.bert.encoder.layer[layer].attention.output.dense.weight.data[:, 8 * head : 8 * head + 8] = 0
    data, task = toy_data(), ToyTask()
    cut = load_model(module, tokenizer=toy_tokenizer())
    rows, vocabulary = task.rows(data.test, cut.tokenizer, 32), Vocabulary.from_tokenizer(cut.tokenizer)
    return task.scores(task.predict(module, rows, data.test, vocabulary, 64), data.test, data.train)[0].row["value"]


def slopes(model):
    """How much each example's loss changes with a gate on the head, by differences; scaled to norm 1 in each layer."""
    task, data, step = ToyTask(), toy_data(), 1e-2
    source = task.rows(data.dev, model.tokenizer, 32)
    examples = TrainingData(source=source, vocabulary=Vocabulary.from_tokenizer(model.tokenizer))
    batch = examples.batch(task, np.arange(len(data.dev)), ("test",), 0)
    found = np.zeros((3, 2))
    for layer, block in enumerate(model.module.bert.encoder.layer):
        weight = block.attention.output.dense.weight
        saved = weight.detach().clone()
        for head in range(2):
            losses, columns = [], slice(8 * head, 8 * head + 8)
            for gate in (1 + step, 1 - step):
                with torch.no_grad():
                    weight[:, columns] = saved[:, columns] * gate
                    losses.append(task.example_losses(model.module, batch).double())
                    weight.copy_(saved)
            found[layer, head] = float(((losses[0] - losses[1]) / (2 * step)).abs().sum())
    found /= np.sqrt((found**2).sum(1, keepdims=True))
    return {("encoder", "self", layer, head): found[layer, head] for layer in range(3) for head in range(2)}


def test_scores_are_those_without_the_least_important_heads(tuned):
    table = task_pruning(tuned, ToyTask(), toy_data(), shares=tuple(np.arange(1, 7) / 6), draws=1)
    whole = np.mean([accuracy_without(one, []) for one in tuned])
    np.testing.assert_allclose(table.baseline.astype(float), whole)
    assert (table.heads == 6).all()
    by_order = {order: part.set_index("removed")["value"] for order, part in table.groupby("order")}
    orders = []
    for one in tuned:
        worth = slopes(one)
        orders.append(sorted(worth, key=worth.__getitem__))
    for number in range(1, 7):
        slow = np.mean([accuracy_without(one, order[:number]) for one, order in zip(tuned, orders, strict=True)])
        assert by_order["importance"][number] == pytest.approx(slow)
    assert by_order["random"][0] == by_order["importance"][0] == pytest.approx(whole)
    assert by_order["random"][6] == pytest.approx(by_order["importance"][6])  # nothing is left either way


def heads_table(values, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        {"stack": "encoder", "kind": "self", "layer": i // 4, "head": i % 4, "value": value,
         "replicates": (value + noise * rng.normal(size=200)).tolist()}
        for i, value in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=8, max_size=8, unique=True), st.permutations(range(8)))
def test_overlap_is_that_of_ranks_and_of_the_first_quarter(values, order):
    other = [values[i] for i in order]
    table = head_overlap({"a": heads_table(values), "b": heads_table(other)}).set_index("measure")
    assert table.value["spearman"] == pytest.approx(spearmanr(values, other).statistic)
    first, second = (set(np.argsort(each)[-2:]) for each in (values, other))
    assert table.value["jaccard"] == pytest.approx(len(first & second) / len(first | second))
    assert table.baseline["spearman"] == 0
    assert table.baseline["jaccard"] == pytest.approx(expected_jaccard(8, 2, 2))


def test_every_pair_of_tasks_has_its_rows_in_any_order_of_heads():
    one = heads_table(range(8), noise=1.0)
    found = head_overlap({"a": one, "b": one.sample(frac=1, random_state=1), "c": heads_table(range(8, 0, -1))})
    assert found.groupby(["task_a", "task_b"]).size().to_dict() == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 2}
    same = found[(found.task_a == "a") & (found.task_b == "b")].set_index("measure")["value"]
    assert same["spearman"] == pytest.approx(1)
    assert same["jaccard"] == 1
    assert (found[found.measure == "spearman"].low <= found[found.measure == "spearman"].value).all()


def test_other_models_are_refused():
    with pytest.raises(UserError, match="different heads"):
        head_overlap({"a": heads_table(range(8)), "b": heads_table(range(4))})
