"""Layers taken back: every number again from a model whose blocks are put together by hand."""

import copy

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, toy_before, toy_corpus, toy_data, toy_tokenizer

from infoflow.adaptation import layer_swaps
from infoflow.models import load_model
from infoflow.subjects.adaptation.measures._body import with_weights
from infoflow.subjects.adaptation.measures._layers_after_tuning import Swap, _taken, rewound_names

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
    from infoflow.objectives import Vocabulary

    return Vocabulary.from_tokenizer(model.tokenizer)


@pytest.mark.parametrize(("rewound", "blocks"), [("none", 0), ("lower", 1), ("lower", 2), ("upper", 2), ("all", 3)])
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
    names = rewound_names(tuned[0], Swap(rewound="lower", blocks=0))
    assert names
    assert all(name.startswith("embeddings") for name in names)


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
    from infoflow.flow import Reader
    from infoflow.heads import SentenceScorer

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


def test_single_blocks_part_what_lies_between_embeddings_and_head(tuned):
    model = tuned[0]
    single = [rewound_names(model, Swap(rewound="one", blocks=1, layer=layer)) for layer in range(3)]
    outside = [rewound_names(model, Swap(rewound=side, blocks=0)) for side in ("lower", "upper")]
    assert sum(map(len, [*single, *outside])) == len(set().union(*single, *outside))
    assert set().union(*single, *outside) == rewound_names(model, Swap(rewound="all", blocks=3))


@pytest.mark.parametrize(
    ("rewound", "lower", "upper"), [("none", 0, 0), ("all", 3, 0), ("lower", 2, 0), ("upper", 0, 2)]
)
def test_logits_are_equal_to_the_bit(tuned, rewound, lower, upper):
    ids = torch.tensor([toy_tokenizer().encode("the old cat runs")])
    wanted = assembled(tuned[0], lower, upper)(ids).logits
    before = {name: p.clone() for name, p in tuned[0].module.named_parameters()}
    with (
        with_weights(tuned[0], _taken(toy_before(), Swap(rewound=rewound, blocks=lower or upper), True)),
        torch.no_grad(),
    ):
        assert torch.equal(tuned[0].module(ids).logits, wanted)
    assert all(torch.equal(p, before[name]) for name, p in tuned[0].module.named_parameters())


def test_names_of_both_sides_part_the_body(tuned):
    model = tuned[0]
    for blocks in (1, 2):
        lower, upper = (
            rewound_names(model, Swap(rewound=side, blocks=num))
            for side, num in (("lower", blocks), ("upper", 3 - blocks))
        )
        assert not lower & upper
        assert lower | upper == rewound_names(model, Swap(rewound="all", blocks=3))
    assert any("embeddings" in name for name in rewound_names(model, Swap(rewound="lower", blocks=1)))
    assert not any("embeddings" in name for name in rewound_names(model, Swap(rewound="upper", blocks=2)))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_single_block_is_taken_back_to_the_bit(tuned, layer):
    names = rewound_names(tuned[0], Swap(rewound="one", blocks=1, layer=layer))
    assert names
    assert all(name.startswith(f"encoder.layer.{layer}.") for name in names)
    ids = torch.tensor([toy_tokenizer().encode("the old cat runs")])
    wanted = assembled(tuned[0], 0, 0, single=layer)(ids).logits
    taken = _taken(toy_before(), Swap(rewound="one", blocks=1, layer=layer), True)
    with with_weights(tuned[0], taken), torch.no_grad():
        assert torch.equal(tuned[0].module(ids).logits, wanted)
