"""A model whose neurons are built by hand: each must be found for what it is."""

import numpy as np
import pytest
import torch
import transformers as t

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import measure
from infoflow.models import load_model
from infoflow.neurons import NeuronExamples, Neurons

WORDS = [f"w{letter}" for letter in "abcdefghijklmnopqrst"]
WIDTH, LENGTH = 128, 40
DEAD, ONE, THREE, OFTEN, EARLY, WAVE, CONSTANT, RARE = range(8)


def sentences():
    """Every word equally often at every position."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, LENGTH)) for _ in range(150)]


@pytest.fixture(scope="module")
def built():
    """Token and position are one coordinate each; one layer with eight neurons reads them."""
    corpus = Corpus.from_sentences(sentences())
    tokenizer = train_tokenizer((one.text for one in corpus), vocab_size=60)
    ids = {word: tokenizer.encode(" " + word, add_special_tokens=False) for word in WORDS}
    ids = {word: found[0] for word, found in ids.items() if len(found) == 1}
    assert len(ids) == len(WORDS), ids
    config = t.OPTConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, word_embed_proj_dim=WIDTH, num_hidden_layers=1, ffn_dim=8,
        num_attention_heads=2, max_position_embeddings=60,
    )  # fmt: skip
    model = load_model(t.OPTForCausalLM(config), tokenizer=tokenizer, device="cpu")
    first, layer = len(tokenizer), model.module.model.decoder.layers[0]
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.zero_()
        for norm in (layer.self_attn_layer_norm, layer.final_layer_norm, model.module.model.decoder.final_layer_norm):
            norm.weight.fill_(1)
        model.module.model.decoder.embed_tokens.weight[:, :first] = torch.eye(first)
        places = min(60, WIDTH - first)
        model.module.model.decoder.embed_positions.weight[2 : 2 + places, first : first + places] = torch.eye(places)
        layer.fc1.bias.fill_(-3.0)
        word = [ids[one] for one in WORDS]
        layer.fc1.weight[ONE, word[0]] = 1
        layer.fc1.weight[THREE, word[1:4]] = 1
        layer.fc1.weight[OFTEN, word[:10]] = 1
        layer.fc1.weight[EARLY, first : first + 15] = 1
        layer.fc1.weight[WAVE, first + 10 : first + 20] = 1
        layer.fc1.bias[CONSTANT] = 1
        layer.fc1.weight[RARE, first + 5] = 1
        layer.fc2.weight[word[0], ONE] = -1
        layer.fc2.weight[word[1:4], THREE] = 1
    return model, corpus, tokenizer, word


def test_each_neuron_is_what_it_was_made(built):
    model, corpus, tokenizer, word = built
    found = measure(model, corpus, [Neurons(), NeuronExamples()])
    shares = found["neurons_by_layer"].set_index("kind")
    expected = {
        "dead": 1, "detector": 2, "positional": 3, "oscillating": 2, "two-sided": 1, "one-sided": 0,
        "other position": 0,
    }  # fmt: skip
    assert {kind: round(8 * shares.loc[kind, "value"], 9) for kind in expected} == expected
    assert shares.loc["suppressing", "value"] == 0.5
    assert shares.loc["suppressing", "neurons"] == 2
    assert (shares["undecided"] == 0).all()
    assert shares.loc["detector", "baseline"] == 0
    assert shares.loc["positional", "baseline"] == 0
    examples = found["neuron_examples"].set_index("neuron")
    kinds = {ONE: "detector", THREE: "detector", EARLY: "two-sided", WAVE: "oscillating", RARE: "oscillating"}
    assert examples["kind"].to_dict() == kinds
    assert examples.loc[ONE, "triggers"] == f"“{tokenizer.decode([word[0]])}”"
    assert sorted(examples.loc[THREE, "triggers"].split(", ")) == sorted(
        f"“{tokenizer.decode([w])}”" for w in word[1:4]
    )
    assert examples.loc[ONE, "effect"] < 0 < examples.loc[THREE, "effect"]
    assert examples.loc[ONE, "suppressed"].split(", ")[0] == f"“{tokenizer.decode([word[0]])}”"
    assert WORDS[0] in examples.loc[ONE, "sentence"].split()
    assert examples.loc[ONE, "value"] == 1
    assert examples.loc[EARLY, "profile"][:15] == pytest.approx([1.0] * 14 + [0.0])  # position 0 is [CLS]


def test_detectors_of_ngrams_are_found_with_what_they_detect(built):
    """Neurons that see the preceding tokens: one detects a bigram, one two trigrams, one a token."""
    model, _, tokenizer, word = built
    layer, seen = model.module.model.decoder.layers[0], []

    def detect(module, args, output):
        ids = seen[-1]
        before, earlier = torch.full_like(ids, -1), torch.full_like(ids, -1)
        before[:, 1:], earlier[:, 2:] = ids[:, :-1], ids[:, :-2]
        bigram = (before == word[4]) & (ids == word[5])
        trigram = (earlier == word[0]) & ((before == word[1]) | (before == word[2])) & (ids == word[3])
        values = torch.full((*ids.shape, 8), -1.0)
        values[..., 0], values[..., 1], values[..., 2] = bigram * 2 - 1, trigram * 2 - 1, (ids == word[6]) * 2 - 1
        return values.reshape(output.shape)

    texts = [" ".join(WORDS[i] for i in (4, 5, 0, 1, 3, 7, 5, 6, 0, 2, 3, 4, 6, 8, 1, 3)) for _ in range(12)]
    texts = [f"{text} {WORDS[9 + number % 11]}" for number, text in enumerate(texts)]
    handles = [
        model.module.get_input_embeddings().register_forward_pre_hook(lambda _, args: seen.append(args[0])),
        layer.fc1.register_forward_hook(detect),
    ]
    found = measure(model, Corpus.from_sentences(texts), [Neurons(), NeuronExamples()])
    for handle in handles:
        handle.remove()
    shares = found["neurons_by_layer"].set_index("kind")
    kinds = ("detector", "bigram detector", "trigram detector")
    assert [8 * shares.loc[kind, "value"] for kind in kinds] == [1, 1, 1]
    assert [shares.loc[kind, "baseline"] for kind in kinds] == [0, 0, 0]
    examples = found["neuron_examples"]
    examples = examples[examples["kind"].str.contains("detector")].set_index("neuron")

    def written(*numbers):
        return f"“{tokenizer.decode([word[number] for number in numbers])}”"

    assert examples.loc[0, ["kind", "triggers"]].to_list() == ["bigram detector", written(4, 5)]
    assert examples.loc[1, "kind"] == "trigram detector"
    assert sorted(examples.loc[1, "triggers"].split(", ")) == sorted([written(0, 1, 3), written(0, 2, 3)])
    assert examples.loc[2, ["kind", "triggers"]].to_list() == ["detector", written(6)]
    assert (examples.loc[:2, "value"] == 1).all()
    assert examples.loc[0, "sentence"] in texts


def test_the_control_has_what_follows_position_only_through_its_token(built):
    """Texts begin with one word: two neurons that read it follow position, as do the two that read position."""
    model, *_ = built
    random = np.random.default_rng(1)
    texts = [" ".join([WORDS[0], *random.choice(WORDS[1:], LENGTH // 4)]) for _ in range(150)]
    found = measure(model, Corpus.from_sentences(texts), [Neurons()])["neurons_by_layer"].set_index("kind")
    assert found.loc["positional", "value"] == 4 / 8
    assert found.loc["positional", "baseline"] == 2 / 8
