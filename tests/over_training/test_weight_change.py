"""How far matrices moved, against numpy on whole arrays."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.tiny_heads import llama, trees
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.over_training import WEIGHT_CHANGE, effective_rank, embedding_change, weight_change

KEYS = ["part", "stack", "kind", "layer", "head"]


def moved(model, seed, size=0.02):
    """The same model after a random walk."""
    module = copy.deepcopy(model.module)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn_like(parameter)
    return replace(model, module=module)


def rank_of(matrix):
    values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    shares = values / values.sum()
    return np.exp(-(shares * np.log(shares)).sum())


def by_hand(now, start, before, last):
    """Every measure of one flat vector of weights."""
    norm = np.linalg.norm
    return {
        "norm": norm(now),
        "from_initial": norm(now - start) / norm(start),
        "from_previous": norm(now - before) / norm(before),
        "step_length": norm(now - before),
        "cosine_initial": now @ start / norm(now) / norm(start),
        "cosine_final": now @ last / norm(now) / norm(last),
    }


def rows_of(table, **keys):
    for name, value in keys.items():
        table = table[table[name] == value]
    return table.set_index("measure")["value"].to_dict()


@pytest.fixture(scope="module")
def course(matched_models):
    models = [matched_models["translation"]]
    for seed in (1, 2, 3):
        models.append(moved(models[-1], seed))
    return models


def vectors(course, names, cut=lambda matrix: matrix):
    """Weights at the third checkpoint, the first, the second and the last."""
    found = []
    for at in (2, 0, 1, 3):
        parameters = dict(course[at].module.named_parameters())
        found.append(np.concatenate([cut(parameters[n].detach().numpy()).ravel() for n in names]).astype(np.float64))
    return found


def test_of_a_matrix_of_a_block_and_of_the_model(course):
    table = weight_change(course[2], course[0], course[1], course[3])
    assert table.columns.tolist() == WEIGHT_CHANGE.column_names
    assert not table.duplicated([*KEYS, "measure"]).any()
    matrices = {n: p.detach().numpy() for n, p in course[2].module.named_parameters() if p.dim() > 1}
    ranks = {name: rank_of(matrix) for name, matrix in matrices.items()}
    layer = course[2].anatomy.stack("decoder").layers[1].block + "."
    parts = {name: [name] for name in matrices} | {"all": list(matrices)}
    parts["block"] = [name for name in matrices if name.startswith(layer)]
    for part, names in parts.items():
        keys = {"stack": "decoder", "layer": 1} if part == "block" else {}
        expected = by_hand(*vectors(course, names)) | {"effective_rank": np.mean([ranks[name] for name in names])}
        assert rows_of(table, part=part, **keys) == pytest.approx(expected, rel=1e-5)


def test_of_a_head(course):
    table = weight_change(course[2], course[0], course[1], course[3])
    one = next(a for a in course[2].anatomy.attentions() if (a.stack, a.kind, a.layer) == ("decoder", "cross", 1))
    rows = slice(2 * one.head_dim, 3 * one.head_dim)
    names = [piece.weight.parameter for piece in (one.query, one.key, one.value)]
    read = vectors(course, names, lambda matrix: matrix[rows])
    written = vectors(course, [one.output.weight.parameter], lambda matrix: matrix[:, rows])
    whole = [np.concatenate(pair) for pair in zip(read, written, strict=True)]
    found = rows_of(table, part="head", stack="decoder", kind="cross", layer=1, head=2)
    rank = found.pop("effective_rank")
    assert found == pytest.approx(by_hand(*whole), rel=1e-5)
    parameters = dict(course[2].module.named_parameters())
    stacked = [parameters[name].detach().numpy()[rows] for name in names]
    stacked.append(parameters[one.output.weight.parameter].detach().numpy()[:, rows].T)
    assert rank == pytest.approx(rank_of(np.concatenate(stacked)), rel=1e-5)


def test_squares_of_heads_add_up_to_their_matrices(course):
    table = weight_change(course[0])
    heads = table[(table["part"] == "head") & (table["measure"] == "norm")]
    squares = (heads["value"] ** 2).groupby([heads["stack"], heads["kind"], heads["layer"]]).sum()
    for one in course[0].anatomy.attentions():
        names = {piece.weight.parameter for piece in (one.query, one.key, one.value, one.output)}
        matrices = table[table["part"].isin(names) & (table["measure"] == "norm")]["value"]
        assert squares[one.stack, one.kind, one.layer] == pytest.approx((matrices**2).sum(), rel=1e-6)


def test_a_model_compared_with_itself_and_scaled(course):
    model = course[0]
    same = weight_change(model, model, model, model)
    for measure, value in {"from_initial": 0, "from_previous": 0, "step_length": 0, "cosine_initial": 1}.items():
        np.testing.assert_allclose(same[same["measure"] == measure]["value"], value, atol=1e-9)
    double = replace(model, module=copy.deepcopy(model.module))
    with torch.no_grad():
        for parameter in double.module.parameters():
            parameter *= 2
    table = weight_change(double, model)
    np.testing.assert_allclose(table[table["measure"] == "from_initial"]["value"], 1, rtol=1e-6)
    np.testing.assert_allclose(table[table["measure"] == "cosine_initial"]["value"], 1, rtol=1e-6)
    assert set(table["measure"]) == {"norm", "from_initial", "cosine_initial", "effective_rank"}


def test_tied_weights_and_shared_heads_count_once():
    torch.manual_seed(0)
    gpt2 = load_model(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)))
    table = weight_change(gpt2)
    assert (table["part"] == "lm_head.weight").sum() == 0
    assert (table["part"] == "transformer.wte.weight").any()
    fused = dict(gpt2.module.named_parameters())["transformer.h.0.attn.c_attn.weight"].detach().numpy()
    out = dict(gpt2.module.named_parameters())["transformer.h.0.attn.c_proj.weight"].detach().numpy()
    head = [fused[:, start + 8 : start + 16].T for start in (0, 16, 32)] + [out[8:16]]
    found = rows_of(table, part="head", layer=0, head=1)
    assert found["norm"] == pytest.approx(np.linalg.norm(np.concatenate(head)), rel=1e-6)
    assert found["effective_rank"] == pytest.approx(rank_of(np.concatenate(head)), rel=1e-5)


def test_grouped_heads_share_keys_and_values():
    model = llama(trees())
    table = weight_change(model)
    weights = {name: one.detach().numpy() for name, one in model.module.named_parameters()}
    start = "model.layers.1.self_attn."
    query, key, value = (weights[f"{start}{name}_proj.weight"] for name in "qkv")
    parts = [query[24:32], key[8:16], value[8:16], weights[f"{start}o_proj.weight"][:, 24:32].T]
    found = rows_of(table, part="head", layer=1, head=3)
    assert found["norm"] == pytest.approx(np.linalg.norm(np.concatenate(parts)), rel=1e-6)


def test_effective_rank():
    assert effective_rank(torch.eye(5)) == pytest.approx(5)
    assert effective_rank(torch.outer(torch.arange(1.0, 5), torch.ones(3))) == pytest.approx(1, abs=1e-5)
    assert np.isnan(effective_rank(torch.zeros(2, 2)))
    random = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    assert effective_rank(random) == pytest.approx(rank_of(random.numpy()))
    assert effective_rank(3 * random) == pytest.approx(effective_rank(random.T))


def test_a_matrix_of_zeros_has_no_share(course):
    start = replace(course[0], module=copy.deepcopy(course[0].module))
    name, matrix = next((n, p) for n, p in start.module.named_parameters() if p.dim() > 1)
    nn.init.zeros_(matrix)
    assert set(rows_of(weight_change(course[1], start), part=name)) == {"norm", "effective_rank"}


def test_models_of_other_shapes_are_refused(matched_models, course):
    with pytest.raises(UserError, match="checkpoints of one training"):
        weight_change(course[0], matched_models["causal-lm"])


def test_embeddings_by_decile_row_by_row(course):
    """Every decile of frequency against sums over its rows."""
    now, last = course[1], course[3]
    counts = np.random.default_rng(0).geometric(0.1, size=40) - 1  # types beyond them were never seen
    table = embedding_change(now, last, counts).set_index("decile")
    first, final = (one.module.get_input_embeddings().weight.detach().double().numpy() for one in (now, last))
    ranked = sorted(counts[counts > 0].tolist(), reverse=True)
    of = {}
    for row in range(len(first)):
        count = counts[row] if row < len(counts) else 0
        places = [place for place, other in enumerate(ranked) if other == count]
        of.setdefault(int(10 * (places[0] + places[-1] + 1) / 2 / len(ranked)) if places else -1, []).append(row)
    assert sorted(of) == table.index.tolist()
    for decile, rows in of.items():
        moved = sum(((first[row] - final[row]) ** 2).sum() for row in rows)
        spread = sum(((final[row] - final.mean(0)) ** 2).sum() for row in rows)
        assert table.loc[decile, "value"] == pytest.approx((moved / spread) ** 0.5)
        assert table.loc[decile, "types"] == len(rows)
    assert (embedding_change(last, last, counts)["value"] == 0).all()


def test_embeddings_of_other_shapes_are_refused(course, matched_models):
    with pytest.raises(UserError, match="Embeddings are compared between checkpoints of one training"):
        embedding_change(course[0], llama(trees()), np.ones(4, dtype=np.int64))
