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
from infoflow.heads import (
    Confidence,
    Entropy,
    HeadDistance,
    PatternScores,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    SurfaceStatistics,
    head_roles,
)
from infoflow.models import load_model

FOLDER = Path(__file__).parent / "circuits"
NAMES = ("first", "following", "frac_prevs", "hist", "previous", "reverse")
OFFSETS = (-2, -1, 0, 1, 2)
SMOOTHING, CLOSE = 1e-3, 1e-6
SENTENCES = ("a b c a b c d d", "a a a", "d c b a", "b", "c a c a d")
# Of each word its head, from 1; 0 is the root.
HEADS = ([2, 0, 2, 3, 4, 5, 6, 7], [0, 1, 2], [2, 3, 4, 0], [0], [3, 3, 0, 3, 4])


def circuit(name):
    """The compiled weights as a BERT without norms; one head per layer."""
    facts, weights = json.loads((FOLDER / f"{name}.json").read_text()), np.load(FOLDER / f"{name}.npz")
    positions, tokens = (weights[f"{kind}_embed/embeddings"] for kind in ("pos", "token"))
    width, key = positions.shape[1], facts["key"]
    size = max(width, key)
    config = BertConfig(
        vocab_size=len(tokens), hidden_size=size, num_hidden_layers=facts["layers"], num_attention_heads=1,
        hidden_act="relu", intermediate_size=facts["mlp"], max_position_embeddings=len(positions), type_vocab_size=1,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    put(model.embeddings.word_embeddings.weight, tokens)
    put(model.embeddings.position_embeddings.weight, positions)
    model.embeddings.LayerNorm = torch.nn.Identity()
    scale = math.sqrt(size / key)
    for index, layer in enumerate(model.encoder.layer):
        inside, own = f"transformer/layer_{index}", layer.attention.self
        for part, linear in {"query": own.query, "key": own.key, "value": own.value}.items():
            times = scale if part == "query" else 1.0
            put(linear.weight, times * weights[f"{inside}/attn/{part}/w"].T)
            put(linear.bias, times * weights[f"{inside}/attn/{part}/b"])
        dense = {
            "attn/linear": layer.attention.output,
            "mlp/linear_1": layer.intermediate,
            "mlp/linear_2": layer.output,
        }
        for part, module in dense.items():
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


def attentions_of(weights, facts, sentence):
    """By the definition, in numpy: of each layer (query, key), BOS included."""
    ids, found = [0, *(facts["vocabulary"][word] for word in sentence.split())], []
    states = weights["token_embed/embeddings"][ids] + weights["pos_embed/embeddings"][: len(ids)]
    for layer in range(facts["layers"]):
        inside = f"transformer/layer_{layer}"

        def through(part, x, inside=inside):
            return x @ weights[f"{inside}/{part}/w"] + weights[f"{inside}/{part}/b"]

        logits = through("attn/query", states) @ through("attn/key", states).T / math.sqrt(facts["key"])
        shares = softmax(logits)
        states = states + through("attn/linear", shares @ through("attn/value", states))
        states = states + through("mlp/linear_2", np.maximum(through("mlp/linear_1", states), 0))
        found.append(shares)
    return found


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def table_of(measured, name, corpus):
    """The measure's table, and a plain version of the attention (layer, query, key) in every sentence."""
    model, weights, facts = circuit(name)
    (table,) = measure(model, corpus, [measured]).values()
    return table, [attentions_of(weights, facts, sentence) for sentence in SENTENCES], facts


def best_keys(row):
    """1/m for each of the m keys with the largest weight."""
    best = row >= row.max() - CLOSE
    return best / best.sum()


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


@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_model_is_the_program(name):
    model, weights, facts = circuit(name)
    model.module.set_attn_implementation("eager")
    ids = torch.tensor([[facts["vocabulary"][word] for word in facts["example"]]])
    halves = []
    for layer in model.module.encoder.layer:
        for half in (layer.attention, layer.output):
            half.register_forward_hook(lambda _, __, out: halves.append(out if torch.is_tensor(out) else out[0]))
    with torch.no_grad():
        attentions = model.module(input_ids=ids, output_attentions=True).attentions
    width = weights["example/residual_0"].shape[1]
    for index, states in enumerate(halves):
        np.testing.assert_allclose(states[0, :, :width], weights[f"example/residual_{index}"], atol=1e-6)
    for layer, attention in enumerate(attentions):
        np.testing.assert_allclose(attention[0], softmax(weights[f"example/attention_logits_{layer}"]), atol=1e-6)
    assert (len(halves), len(attentions)) == (2 * facts["layers"], facts["layers"])


@pytest.mark.parametrize("name", NAMES)
def test_surface_statistics_are_those_of_loops(name, treebank):
    table, sentences, facts = table_of(SurfaceStatistics(smoothing=SMOOTHING), name, treebank)
    for layer in range(facts["layers"]):
        sums, count = defaultdict(float), 0
        for attention in (of[layer] for of in sentences):
            for i, row in enumerate(attention):
                count += 1
                sums["self"] += row[i]
                sums["previous"] += row[i - 1] if i else 0.0
                sums["next"] += row[i + 1] if i + 1 < len(row) else 0.0
                sums["first"] += row[0]
                sums["bos"] += row[0]
                sums["last"] += row[-1]
                smooth = (1 - SMOOTHING) * row + SMOOTHING / len(row)
                sums["entropy"] -= (smooth * np.log(smooth)).sum()
        own = table[table["layer"] == layer].set_index("statistic")["value"]
        for statistic, total in sums.items():
            assert own[statistic] == pytest.approx(total / count, abs=1e-6), statistic


@pytest.mark.parametrize("name", NAMES)
def test_confidence_entropy_and_offsets_are_those_of_loops(name, treebank):
    """Without BOS as query and key; weights are not renormalised."""
    model, weights, facts = circuit(name)
    tables = measure(model, treebank, [Confidence(), Entropy(), PositionalScores(offsets=OFFSETS)])
    for layer in range(facts["layers"]):
        rows = [attentions_of(weights, facts, sentence)[layer][1:, 1:] for sentence in SENTENCES]
        of_layer = {kind: table[table["layer"] == layer] for kind, table in tables.items()}
        largest = np.mean([row.max() for of in rows for row in of])
        assert of_layer["head_confidence"]["value"].tolist() == pytest.approx([largest], abs=1e-6)
        entropy = np.mean([-(row[row > 0] * np.log(row[row > 0])).sum() for of in rows for row in of])
        assert of_layer["head_entropy"]["value"].tolist() == pytest.approx([entropy], abs=1e-6)
        for offset in OFFSETS:
            hits = [best_keys(row)[i + offset] for of in rows for i, row in enumerate(of) if 0 <= i + offset < len(row)]
            own = of_layer["head_positional"].set_index("offset")["value"]
            assert own[offset] == pytest.approx(np.mean(hits), abs=1e-6), offset


@pytest.mark.parametrize("name", NAMES)
def test_relations_are_those_of_loops(name, treebank):
    table, sentences, facts = table_of(RelationScores(conventions=("voita",), minimum=1), name, treebank)
    for layer in range(facts["layers"]):
        hits, edges = defaultdict(float), 0
        for attention, heads in zip((of[layer][1:, 1:] for of in sentences), HEADS, strict=True):
            for dependent, head in enumerate(heads):
                if not head:
                    continue
                edges += 1
                hits["dep→head"] += best_keys(attention[dependent])[head - 1]
                hits["head→dep"] += best_keys(attention[head - 1])[dependent]
        own = table[(table["layer"] == layer) & (table["relation"] == "dep")].set_index("direction")["value"]
        assert sorted(own.round(6)) == pytest.approx(sorted(total / edges for total in hits.values()), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_rare_tokens_are_those_of_loops(name, treebank):
    table, sentences, facts = table_of(RareTokenScores(rarest=(1,), top=0), name, treebank)
    frequency = defaultdict(int)
    for word in " ".join(SENTENCES).split():
        frequency[word] += 1
    order = sorted(frequency, key=lambda word: (-frequency[word], facts["vocabulary"][word]))
    for layer in range(facts["layers"]):
        hits, queries = 0.0, 0
        for of, sentence in zip(sentences, SENTENCES, strict=True):
            words = sentence.split()
            rarest = np.array(words) == max(words, key=order.index)
            for row in of[layer][1:, 1:]:
                hits, queries = hits + best_keys(row)[rarest].sum(), queries + 1
        own = table[table["layer"] == layer]["value"]
        assert own.tolist() == pytest.approx([hits / queries], abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_patterns_on_repeats_are_those_of_loops(name, treebank):
    """No program tells one set of different letters from another, so the letters drawn do not matter."""
    table, _, facts = table_of(PatternScores(length=4, repeats=2, sequences=3), name, treebank)
    words = list("bcdebcde")
    for layer, attention in enumerate(attentions_of(circuit(name)[1], facts, " ".join(words))):
        on, rows = attention[1:, 1:], defaultdict(set)
        sums = defaultdict(float)
        for i, word in enumerate(words):
            targets = {
                "previous": [i - 1] if i else [],
                "duplicate": [j for j in range(i) if words[j] == word],
                "induction": [j for j in range(1, i) if words[j - 1] == word],
            }
            for pattern, keys in targets.items():
                sums[pattern] += on[i, keys].sum()
                rows[pattern] |= {i} if keys else set()
        own = table[(table["layer"] == layer)].set_index(["pattern", "score"])["value"]
        for pattern, total in sums.items():
            within = attention[[i + 1 for i in rows[pattern]]].sum()
            assert own[pattern, "share"] == pytest.approx(total / len(words), abs=1e-6)
            assert own[pattern, "valid rows"] == pytest.approx(total / within, abs=1e-6)


@pytest.mark.parametrize("name", ["frac_prevs", "reverse"])
def test_distances_of_heads_are_those_of_loops(name, treebank):
    table, sentences, _ = table_of(HeadDistance(smoothing=SMOOTHING), name, treebank)
    for pair in table.itertuples():
        found = []
        for of in sentences:
            p, q = ((1 - SMOOTHING) * of[layer] + SMOOTHING / len(of[layer]) for layer in (pair.layer_a, pair.layer_b))
            mean = (p + q) / 2
            found += list(((p * np.log(p / mean) + q * np.log(q / mean)) / 2).sum(axis=1))
        assert pair.distance == pytest.approx(np.mean(found), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("previous", {(0, "positional -1")}),
        ("following", {(0, "positional +1")}),
        ("hist", {(0, "duplicate token")}),
        ("first", set()),
        ("frac_prevs", set()),
        ("reverse", set()),
    ],
)
def test_roles_are_found(name, expected, tmp_path):
    """`first` attends to the first letter, not to BOS, which is the first token; `hist` also attends to BOS."""
    random = np.random.default_rng(0)
    text = [" ".join(random.choice(list("abcdefgh"), size)) for size in random.integers(2, 10, 200)]
    (tmp_path / "letters.txt").write_text("\n".join(text) + "\n")
    measures = [PositionalScores(), SurfaceStatistics(), PatternScores(sequences=64, exclude_special=True)]
    roles = head_roles(measure(circuit(name)[0], Corpus.from_text(tmp_path / "letters.txt"), measures))
    held = roles[roles["holds"]]
    assert set(zip(held["layer"], held["role"], strict=True)) == expected
