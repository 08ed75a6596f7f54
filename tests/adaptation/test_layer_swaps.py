"""Layers taken back: every number again from a model whose blocks are put together by hand."""

import copy

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_before, toy_corpus, toy_data, toy_tokenizer

from infoflow.adaptation import layer_swaps
from infoflow.flow import Reader
from infoflow.heads import SentenceScorer
from infoflow.models import load_model
from infoflow.objectives import Vocabulary

SWAPS = [
    ("none", 0, -1), ("lower", 0, -1), ("lower", 1, -1), ("lower", 2, -1), ("upper", 1, -1), ("upper", 2, -1),
    ("one", 1, 0), ("one", 1, 1), ("one", 1, 2), ("all", 3, -1),
]  # fmt: skip


def assembled(tuned, lower, upper, embeddings=False, single=None):
    """The tuned model with these blocks (and on their side embeddings) from before, copied block by block."""
    module, before = copy.deepcopy(tuned.module), toy_before().module.bert
    if lower or embeddings:
        module.bert.embeddings = copy.deepcopy(before.embeddings)
    for index in range(3):
        if index < lower or index >= 3 - upper or index == single:
            module.bert.encoder.layer[index] = copy.deepcopy(before.encoder.layer[index])
    return module


@pytest.fixture(scope="module")
def table(tuned):
    return layer_swaps(toy_before(), tuned, ToyTask(), toy_data(), pretraining=toy_corpus(30, 5))


def accuracy(module):
    data, task = toy_data(), ToyTask()
    model = load_model(module, tokenizer=toy_tokenizer())
    rows = task.rows(data.test, model.tokenizer, 32)
    return task.scores(task.predict(module, rows, data.test, vocabulary_of(model), 100), data.test, data.train)[0].row


def vocabulary_of(model):
    return Vocabulary.from_tokenizer(model.tokenizer)


@pytest.mark.parametrize(("rewound", "blocks"), [("lower", 1), ("upper", 2), ("all", 3)])
def test_scores_are_those_of_the_model_put_together(tuned, table, rewound, blocks):
    row = table[(table.rewound == rewound) & (table.blocks == blocks) & (table.quantity == "score")].iloc[0]
    lower, upper = (blocks if rewound in (side, "all") else 0 for side in ("lower", "upper"))
    each = [accuracy(assembled(one, lower, upper))["value"] for one in tuned]
    assert row["value"] == pytest.approx(np.mean(each))
    assert row["baseline"] == pytest.approx(np.mean([accuracy(assembled(one, 3, 3))["value"] for one in tuned]))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_single_block_taken_back_leaves_all_others_tuned(tuned, table, layer):
    row = table.query(f"rewound == 'one' and layer == {layer} and quantity == 'score'").iloc[0]
    each = [accuracy(assembled(one, 0, 0, single=layer))["value"] for one in tuned]
    assert row["value"] == pytest.approx(np.mean(each))
    assert row["blocks"] == 1


def test_embeddings_alone_are_taken_back_as_lower_blocks_are(tuned, table):
    row = table.query("rewound == 'lower' and blocks == 0 and quantity == 'score'").iloc[0]
    each = [accuracy(assembled(one, 0, 0, embeddings=True))["value"] for one in tuned]
    assert row["value"] == pytest.approx(np.mean(each))


def test_pretraining_losses_are_those_of_the_bodies_put_together(tuned):
    first, text = tuned[0], toy_corpus(30, 5)
    unchanged = {name: parameter.clone() for name, parameter in first.module.named_parameters()}
    table = layer_swaps(toy_before(), [first], ToyTask(), toy_data(), pretraining=text, examples=5)
    assert all(torch.equal(parameter, unchanged[name]) for name, parameter in first.module.named_parameters())
    rows = table[table["quantity"] == "pretraining-loss"]
    found = {(row["rewound"], row["blocks"], row["layer"]): row["value"] for row in rows.to_dict("records")}
    wanted = {}
    for rewound, blocks, layer in SWAPS:
        lower, upper = (blocks if rewound in (side, "all") else 0 for side in ("lower", "upper"))
        body = assembled(first, lower, upper, embeddings=rewound == "lower", single=layer if rewound == "one" else None)
        module = copy.deepcopy(toy_before().module)
        module.bert.load_state_dict(body.bert.state_dict(), strict=False)
        wanted[rewound, blocks, layer] = masked_loss(load_model(module, tokenizer=toy_tokenizer()), text)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert len({round(loss, 4) for loss in wanted.values()}) == len(SWAPS) - 1  # nothing lies above the last block
    assert (rows["baseline"] == found["all", 3, -1]).all()


def masked_loss(model, corpus):
    """Nats per masked token, sentence by sentence, with the noise that measures of heads have."""
    scorer = SentenceScorer(Reader(model, corpus, max_length=512, seed=0, decoder=False))
    total, count = 0.0, 0
    for row in scorer.reader.rows:
        batch = scorer.batch(np.array([row]))
        stream = batch.padded.streams["encoder"]
        with torch.no_grad():
            logits = model.module(input_ids=stream.input_ids).logits
        scored = batch.labels != -100
        if scored.any():
            total += float(torch.nn.functional.cross_entropy(logits[scored], batch.labels[scored], reduction="sum"))
            count += int(scored.sum())
    return total / count


def test_numbers_of_blocks(table):
    assert [*table[["rewound", "blocks", "layer"]].drop_duplicates().itertuples(index=False, name=None)] == SWAPS
