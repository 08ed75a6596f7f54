"""Head tables of Transformers that were compiled from programs, against plain loops over their attention."""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from infoflow.corpus import Corpus
from infoflow.flow import measure
from infoflow.heads import RareTokenScores, RelationScores, SurfaceStatistics
from infoflow.models import load_model

FOLDER = Path(__file__).parent / "circuits"
SMOOTHING = 1e-3
SENTENCES = ("a b c a b c d d", "a a a", "d c b a", "b", "c a c a d")
# Of each word its head, from 1; 0 is the root.
HEADS = ([2, 0, 2, 3, 4, 5, 6, 7], [0, 1, 2], [2, 3, 4, 0], [0], [3, 3, 0, 3, 4])


def circuit(name):
    """The compiled weights as a BERT without norms."""
    facts, weights = json.loads((FOLDER / f"{name}.json").read_text()), np.load(FOLDER / f"{name}.npz")
    positions, tokens = (weights[f"{kind}_embed/embeddings"] for kind in ("pos", "token"))
    width, key = positions.shape[1], facts["key"]
    size = max(width, key)
    config = BertConfig(
        vocab_size=len(tokens), hidden_size=size, num_hidden_layers=1, num_attention_heads=1, hidden_act="relu",
        intermediate_size=facts["mlp"], max_position_embeddings=len(positions), type_vocab_size=1,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    put(model.embeddings.word_embeddings.weight, tokens)
    put(model.embeddings.position_embeddings.weight, positions)
    model.embeddings.LayerNorm = torch.nn.Identity()
    layer, inside = model.encoder.layer[0], "transformer/layer_0"
    scale = math.sqrt(size / key)
    parts = {"query": layer.attention.self.query, "key": layer.attention.self.key, "value": layer.attention.self.value}
    for part, linear in parts.items():
        times = scale if part == "query" else 1.0
        put(linear.weight, times * weights[f"{inside}/attn/{part}/w"].T)
        put(linear.bias, times * weights[f"{inside}/attn/{part}/b"])
    pairs = {"attn/linear": layer.attention.output, "mlp/linear_1": layer.intermediate, "mlp/linear_2": layer.output}
    for part, module in pairs.items():
        put(module.dense.weight, weights[f"{inside}/{part}/w"].T)
        put(module.dense.bias, weights[f"{inside}/{part}/b"])
    layer.attention.output.LayerNorm = layer.output.LayerNorm = torch.nn.Identity()
    return load_model(model, tokenizer=tokenizer_of(facts["vocabulary"])), weights, facts


def put(parameter, values):
    with torch.no_grad():
        parameter[tuple(slice(size) for size in values.shape)] = torch.from_numpy(np.asarray(values))


def tokenizer_of(vocabulary):
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="PAD"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.post_processor = processors.TemplateProcessing(single="BOS $A", special_tokens=[("BOS", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="BOS", pad_token="PAD", unk_token="PAD")


def attention_of(weights, facts, sentence):
    """By the definition, in numpy: (query, key), BOS included."""
    ids = [0, *(facts["vocabulary"][word] for word in sentence.split())]
    states = weights["token_embed/embeddings"][ids] + weights["pos_embed/embeddings"][: len(ids)]
    at = "transformer/layer_0/attn"
    query, key = (states @ weights[f"{at}/{part}/w"] + weights[f"{at}/{part}/b"] for part in ("query", "key"))
    logits = query @ key.T / math.sqrt(facts["key"])
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    lines = []
    for sentence, heads in zip(SENTENCES, HEADS, strict=True):
        words = sentence.split()
        lines += [
            f"{place}\t{word}\t_\tNOUN\t_\t_\t{head}\t{'dep' if head else 'root'}\t_\t_"
            for place, (word, head) in enumerate(zip(words, heads, strict=True), 1)
        ]
        lines.append("")
    path = tmp_path_factory.mktemp("circuits") / "letters.conllu"
    path.write_text("\n".join(lines) + "\n")
    return Corpus.from_conllu(path)


@pytest.mark.parametrize("name", ["previous", "hist"])
def test_the_compiled_model_is_the_program(name):
    model, weights, facts = circuit(name)
    ids = torch.tensor([[facts["vocabulary"][word] for word in facts["example"]]])
    states = model.module(input_ids=ids).last_hidden_state[0, :, : weights["example/residual_1"].shape[1]]
    np.testing.assert_allclose(states.detach().numpy(), weights["example/residual_1"], atol=1e-5)


@pytest.mark.parametrize("name", ["previous", "hist"])
def test_surface_statistics_are_those_of_loops(name, treebank):
    model, weights, facts = circuit(name)
    table = measure(model, treebank, [SurfaceStatistics(smoothing=SMOOTHING)])["head_surface"].set_index("statistic")
    sums, count = defaultdict(float), 0
    for sentence in SENTENCES:
        attention = attention_of(weights, facts, sentence)
        for i in range(len(attention)):
            count += 1
            sums["previous"] += attention[i, i - 1] if i else 0.0
            sums["next"] += attention[i, i + 1] if i + 1 < len(attention) else 0.0
            smooth = (1 - SMOOTHING) * attention[i] + SMOOTHING / len(attention)
            sums["entropy"] -= (smooth * np.log(smooth)).sum()
    for statistic, total in sums.items():
        assert table.loc[statistic, "value"] == pytest.approx(total / count, abs=1e-6), statistic


@pytest.mark.parametrize("name", ["previous", "hist"])
def test_relations_are_those_of_loops(name, treebank):
    model, weights, facts = circuit(name)
    table = measure(model, treebank, [RelationScores(conventions=("voita",), minimum=1)])["head_relations"]
    hits, edges = defaultdict(float), 0
    for sentence, heads in zip(SENTENCES, HEADS, strict=True):
        attention = attention_of(weights, facts, sentence)[1:, 1:]
        for dependent, head in enumerate(heads):
            if not head:
                continue
            edges += 1
            for direction, (one, other) in {
                "dep→head": (dependent, head - 1),
                "head→dep": (head - 1, dependent),
            }.items():
                best = np.flatnonzero(attention[one].astype(np.float32) == attention[one].astype(np.float32).max())
                hits[direction] += (other in best) / len(best)
    own = table[table["relation"] == "dep"].set_index("direction")["value"]
    assert sorted(own.round(6)) == pytest.approx(sorted(total / edges for total in hits.values()), abs=1e-6)


@pytest.mark.parametrize("name", ["previous", "hist"])
def test_rare_tokens_are_those_of_loops(name, treebank):
    model, weights, facts = circuit(name)
    table = measure(model, treebank, [RareTokenScores(rarest=(1,), top=0)])["head_rare_token"]
    frequency = defaultdict(int)
    for word in " ".join(SENTENCES).split():
        frequency[word] += 1
    order = sorted(frequency, key=lambda word: (-frequency[word], facts["vocabulary"][word]))
    hits, queries = 0.0, 0
    for sentence in SENTENCES:
        words = sentence.split()
        attention = attention_of(weights, facts, sentence)[1:, 1:].astype(np.float32)
        rarest = max(words, key=order.index)
        for row in attention:
            best = np.flatnonzero(row == row.max())
            hits, queries = hits + sum(words[place] == rarest for place in best) / len(best), queries + 1
    assert table["value"].tolist() == pytest.approx([hits / queries], abs=1e-6)
