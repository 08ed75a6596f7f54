"""Massive activations and their ablation against plain loops, and where weights put such activations."""

import numpy as np
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny

import infoflow
from infoflow import UserError
from infoflow.flow import PassOptions, measure
from infoflow.models import load_model
from infoflow.sinks import MassiveAblation, MassiveActivations

PLACE = 5  # the dimension in which the first token's embedding is huge


@pytest.fixture(scope="module")
def corpus():
    return infoflow.load_corpus([s.text for s in tiny.trees(20)])


def with_massive(corpus, size=30_000.0):
    """A causal LM whose first token, always [CLS], has one huge activation that no block removes."""
    model = tiny.llama(corpus)
    with torch.no_grad():
        model.module.model.embed_tokens.weight[model.tokenizer.cls_token_id, PLACE] = size
    return model


def blocks_of(module):
    return module.model.layers


def states_of(module, ids):
    """The embeddings and each block's output."""
    found = [module.model.embed_tokens(torch.tensor([ids]))[0]]
    handles = [
        block.register_forward_hook(lambda _, __, out: found.append((out if torch.is_tensor(out) else out[0])[0]))
        for block in blocks_of(module)
    ]
    with torch.no_grad():
        logits = module(torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return [one.detach().numpy() for one in found], logits


@pytest.mark.parametrize("build", [tiny.llama, with_massive])
def test_it_agrees_with_a_loop_over_sentences(build, corpus):
    model = build(corpus)
    table = measure(model, corpus, [MassiveActivations()])["massive_activation"]
    rows = table.set_index(["layer", "dimension", "token", "statistic"])["value"]
    expected = {}
    for sentence in corpus:
        states, _ = states_of(model.module, model.tokenizer(sentence.text)["input_ids"])
        for layer, state in enumerate(states):
            sizes = np.abs(state)
            median = np.sort(sizes, axis=None)[(sizes.size - 1) // 2]
            above = sizes >= 1000 * median
            numbers = {
                "largest": sizes.max() / median,
                "above_1000": above.any(),
                "above_100": (sizes >= 100 * median).any(),
            }
            numbers |= {"massive": (above & (sizes > 100)).any()}
            for name, number in numbers.items():
                expected.setdefault((layer, -1, "any", name), []).append(number)
    for key, numbers in expected.items():
        assert rows[key] == pytest.approx(np.mean(numbers), rel=1e-5), key


def test_a_huge_activation_is_found_at_its_place(corpus):
    table = measure(with_massive(corpus), corpus, [MassiveActivations()])["massive_activation"]
    massive = table[table["statistic"] == "massive"]
    assert (massive.loc[massive["token"] == "any", "value"] == 1).all()
    assert set(massive["dimension"]) == {-1, PLACE}
    by_token = massive[massive["token"] != "any"]
    assert dict(zip(by_token["token"], by_token["value"], strict=True))["first"] == 1
    assert (by_token.loc[by_token["token"] != "first", "value"] == 0).all()
    assert by_token.groupby("layer")["baseline"].sum().to_numpy() == pytest.approx(1)
    none = measure(tiny.llama(corpus), corpus, [MassiveActivations()])["massive_activation"]
    assert (none.loc[none["statistic"] != "largest", "value"] == 0).all()


def test_states_that_are_normally_distributed_equal_the_control():
    """The largest of a state's activations, on average over random states of BERT's embeddings."""
    corpus = infoflow.load_corpus([s.text for s in tiny.trees(40)])
    model = tiny.bert(corpus, heads=8)
    table = measure(model, corpus, [MassiveActivations()])["massive_activation"]
    row = table[(table["statistic"] == "largest") & (table["layer"] == 0)].iloc[0]
    assert row["value"] == pytest.approx(row["baseline"], rel=0.15)


def losses(module, ids, layer=None, place=(), numbers=()):
    """Sum of the cross-entropy, with entries of the output of one block replaced."""

    def replace(block, args, output):
        states = output if torch.is_tensor(output) else output[0]
        states = states.clone()
        for (token, dimension), number in zip(place, numbers, strict=True):
            states[0, token, dimension] = number
        return states if torch.is_tensor(output) else (states, *output[1:])

    handle = None if layer is None else blocks_of(module)[layer - 1].register_forward_hook(replace)
    with torch.no_grad():
        logits = module(torch.tensor([ids])).logits[0, :-1]
    if handle:
        handle.remove()
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))


@pytest.mark.parametrize("build", [tiny.llama, with_massive])
def test_the_ablation_agrees_with_a_loop_over_sentences(build, corpus):
    model, num = build(corpus), 3
    table = measure(model, corpus, [MassiveAblation(changed=num)], options=PassOptions(tokens_per_batch=60))
    found = table["massive_ablation"].set_index(["layer", "mode"])["value"]
    texts = [model.tokenizer(sentence.text)["input_ids"] for sentence in corpus]
    tokens = sum(len(ids) - 1 for ids in texts)
    for layer in (1, 2):
        chosen, by_dimension = [], {}
        for ids in texts:
            state = states_of(model.module, ids)[0][layer]
            order = np.argsort(-np.abs(state), axis=None)[:num]
            chosen.append([tuple(map(int, np.unravel_index(at, state.shape))) for at in order])
            for at in chosen[-1]:
                by_dimension.setdefault(at[1], []).append(state[at])
        means = {dimension: float(np.mean(own)) for dimension, own in by_dimension.items()}
        for mode in ("zero", "mean"):
            change = 0.0
            for ids, places in zip(texts, chosen, strict=True):
                numbers = [means[dimension] if mode == "mean" else 0.0 for _, dimension in places]
                change += losses(model.module, ids, layer, places, numbers) - losses(model.module, ids)
            assert found[layer, mode] == pytest.approx(change / tokens, abs=2e-5), (layer, mode)


def test_of_a_constant_activation_the_mean_is_harmless_and_random_ones_are(corpus):
    """The first block's input to the second is the same there, always: its mean is itself."""
    table = measure(with_massive(corpus), corpus, [MassiveAblation(changed=1)])["massive_ablation"]
    rows = table.set_index(["layer", "mode"])
    assert abs(rows.loc[(1, "mean"), "value"]) < 1e-3
    assert rows.loc[(1, "zero"), "value"] > 0.01 > abs(rows.loc[(1, "zero"), "baseline"])


def test_shared_layers_and_masked_models_are_read_like_others(corpus):
    tokenizer = tiny.tokenizer_of(corpus)
    config = t.AlbertConfig(
        vocab_size=len(tokenizer), embedding_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = load_model(t.AlbertForMaskedLM(config), tokenizer=tokenizer)
    whole = measure(model, corpus, [MassiveAblation()])["massive_ablation"]
    parts = measure(model, corpus, [MassiveAblation()], options=PassOptions(tokens_per_batch=50))["massive_ablation"]
    assert list(whole["layer"]) == [1, 1, 2, 2, 3, 3]
    assert whole["value"].to_numpy() == pytest.approx(parts["value"].to_numpy(), abs=1e-5)
    assert whole["baseline"].to_numpy() == pytest.approx(parts["baseline"].to_numpy(), abs=1e-5)
    assert (whole.loc[whole["layer"] < 3, "value"].abs() > 1e-6).all()


def test_a_model_without_predictions_and_bad_settings_are_refused(corpus):
    tokenizer = tiny.tokenizer_of(corpus)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = load_model(t.BertModel(t.BertConfig(vocab_size=len(tokenizer), **size)), tokenizer=tokenizer)
    with pytest.raises(UserError, match="no language-model head"):
        measure(encoder, corpus, [MassiveAblation()])
    for wrong in ({"sentences": 0}, {"changed": 0}):
        with pytest.raises(UserError, match="at least 1"):
            MassiveAblation(**wrong)
