"""Convergence of layers and blocks: against an explicit version, one sentence at a time; its nulls and limits."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.models import rerun_others
from infoflow.over_training import LayerConvergence, displacement
from infoflow.representations import ReferenceLayer, linear_cka, procrustes_distance, pwcca


def moved(model, size: float, seed: int = 0):
    """The model with noise on every tensor."""
    module, generator = copy.deepcopy(model.module), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return dataclasses.replace(model, name=f"moved-{seed}", module=module)


def table(model, corpus, references, **options):
    measures = [LayerConvergence(lambda: references, ["test"], **options)]
    return measure(model, corpus, measures, PassOptions(tokens_per_batch=64))["convergence"]


def states_one_by_one(model, corpus, blocks_of=None):
    """States of valid tokens; with `blocks_of` what that model's blocks add to this one's states."""
    states: list[list[np.ndarray]] = []
    updates: list[list[np.ndarray]] = []
    encoded = corpus.encode(model.tokenizer, side="text", max_length=64)
    ids = sorted(range(len(corpus)), key=lambda row: corpus.content_ids[row])
    for row in ids:
        tokens, valid = torch.tensor(encoded.row(row).astype(np.int64))[None], ~encoded.special(row)
        if not len(tokens[0]):
            continue
        with torch.no_grad():
            hidden = model.module.base_model(tokens, output_hidden_states=True).hidden_states
        states.append([state[0, valid].numpy() for state in hidden])
        if blocks_of is not None:
            with torch.no_grad():
                blocks = blocks_of.module.base_model.encoder.layer
                out = [block(hidden[layer]) for layer, block in enumerate(blocks)]
            added = [(one if torch.is_tensor(one) else one[0])[0] - hidden[layer][0] for layer, one in enumerate(out)]
            updates.append([one[valid].numpy() for one in added])
    join = lambda parts: [np.concatenate(layer) for layer in zip(*parts, strict=True)]  # noqa: E731
    return join(states), join(updates) if updates else []


def value(rows, **where):
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1
    return rows.iloc[0]


def test_states_and_blocks_agree_with_sentences_read_one_by_one(matched_models, parallel_corpus) -> None:
    final = matched_models["masked-lm"]
    now = moved(final, 0.05)
    rows = table(now, parallel_corpus, {"final": final}, occurrences=10_000)
    own, _ = states_one_by_one(now, parallel_corpus)
    theirs, updates = states_one_by_one(final, parallel_corpus, blocks_of=final)
    _, at = states_one_by_one(final, parallel_corpus, blocks_of=now)
    for kind, first, second in (("state", own, theirs), ("block", at, updates)):
        for layer, (x, r) in enumerate(zip(first, second, strict=True)):
            for name, expected in {
                "cka": linear_cka(x, r, debiased=True),
                "procrustes": math.cos(procrustes_distance(x, r)),
                "displacement": np.linalg.norm(x - r) / np.linalg.norm(r - r.mean(0)),
            }.items():
                found = value(rows, kind=kind, layer=layer, similarity=name)
                assert found["value"] == pytest.approx(expected, abs=2e-5), (kind, layer, name)
                assert found["low"] <= found["value"] <= found["high"]
            assert found["count"] == len(x)


def test_pwcca_is_left_out_below_twenty_tokens_per_dimension(matched_models, parallel_corpus) -> None:
    final = matched_models["masked-lm"]
    rows = table(moved(final, 0.05), parallel_corpus, {"final": final})
    assert rows["count"].max() < 20 * 32
    assert set(rows["similarity"]) == {"cka", "cka without outliers", "procrustes", "displacement"}


def test_enough_tokens_give_pwcca_of_the_reference_function() -> None:
    generator = np.random.default_rng(0)
    r = generator.normal(size=(800, 6)).astype(np.float32)
    x = (r @ generator.normal(size=(6, 6)) + generator.normal(size=(800, 6))).astype(np.float32)
    found = ReferenceLayer(r, generator.integers(0, 64, 800)).similarities(x, ["pwcca", "cka_debiased"])
    assert found["pwcca"]["value"] == pytest.approx(float(pwcca(torch.tensor(x), torch.tensor(r))), abs=1e-5)
    assert abs(found["cka_debiased"]["baseline"]) < 0.02


def test_the_end_is_like_itself(matched_models, parallel_corpus) -> None:
    final = matched_models["causal-lm"]
    rows = table(final, parallel_corpus, {"final": final})
    near = rows[rows["similarity"] != "displacement"]
    assert near["value"].to_numpy() == pytest.approx(1, abs=1e-6)
    assert near["null"].to_numpy() == pytest.approx(1, abs=1e-6)
    assert rows[rows["similarity"] == "displacement"]["value"].to_numpy() == pytest.approx(0, abs=1e-7)


def test_noise_as_large_as_the_way_to_go_is_the_null(matched_models, parallel_corpus) -> None:
    """A checkpoint that *is* noise around the final weights is as near as its null, and other references have none."""
    final = matched_models["masked-lm"]
    rows = table(moved(final, 0.05), parallel_corpus, {"final": final, "previous": moved(final, 0.05, seed=1)}, draws=8)
    cka = rows[(rows["similarity"] == "cka") & (rows["reference"] == "final")]
    assert cka["value"].to_numpy() == pytest.approx(cka["null"].to_numpy(), abs=0.15)
    assert rows[rows["reference"] == "previous"]["null"].isna().all()
    assert set(rows[rows["reference"] == "previous"]["kind"]) == {"state"}


def test_batches_and_padding_change_nothing(matched_models, parallel_corpus) -> None:
    final, now = matched_models["causal-lm"], moved(matched_models["causal-lm"], 0.05)
    measures = [LayerConvergence(lambda: {"final": final}, [])]
    one, other = (
        measure(now, parallel_corpus, measures, PassOptions(tokens_per_batch=size))["convergence"]
        for size in (16, 4096)
    )
    assert one["value"].to_numpy() == pytest.approx(other["value"].to_numpy(), abs=1e-4)
    assert one["null"].to_numpy() == pytest.approx(other["null"].to_numpy(), abs=1e-4)


def test_of_a_translation_model_the_encoder_is_compared(matched_models, parallel_corpus) -> None:
    final = matched_models["translation"]
    rows = table(moved(final, 0.05), parallel_corpus, {"final": final})
    assert set(rows["stack"]) == {"encoder"}
    assert rows.groupby("kind")["layer"].nunique().to_dict() == {"block": 2, "state": 3}


def test_fewer_occurrences_are_those_of_the_first_sentences(matched_models, parallel_corpus) -> None:
    final, now = matched_models["causal-lm"], moved(matched_models["causal-lm"], 0.05)
    few, all_ = (table(now, parallel_corpus, {"final": final}, occurrences=n) for n in (60, 10_000))
    assert 40 <= few["count"].iloc[0] < 90 < all_["count"].iloc[0]


def test_models_of_two_shapes_are_refused(matched_models, parallel_corpus) -> None:
    final = matched_models["masked-lm"]
    smaller = copy.deepcopy(final.module)
    smaller.base_model.encoder.layer = smaller.base_model.encoder.layer[:1]
    from infoflow.models import load_model

    other = load_model(smaller, tokenizer=final.tokenizer)
    with pytest.raises(UserError, match="different tensors"):
        table(other, parallel_corpus, {"final": final})
    with pytest.raises(UserError, match="a different number of blocks"):
        rerun_others(final, [other], "encoder", lambda: None)


@pytest.mark.parametrize(("s", "cka", "canonical"), [(0.2, 0.0588, 0.2425), (0.5, 0.5, 0.7071), (0.8, 0.9412, 0.9701)])
def test_a_straight_path_between_two_spaces(s: float, cka: float, canonical: float) -> None:
    generator = np.random.default_rng(0)
    basis, _ = np.linalg.qr(generator.normal(size=(400, 9)))
    centred = basis - basis.mean(0)
    q, _ = np.linalg.qr(centred[:, :8])
    a, b = q[:, :4], q[:, 4:]
    x = ((1 - s) * a + s * b).astype(np.float64)
    assert linear_cka(x, b) == pytest.approx(cka, abs=1e-4)
    assert float(pwcca(torch.tensor(x), torch.tensor(b))) == pytest.approx(canonical, abs=1e-4)
    found = displacement(x.astype(np.float32), b.astype(np.float32), np.arange(400) % 64)
    assert found["value"] == pytest.approx((1 - s) * math.sqrt(2), abs=1e-5)
    rotation, _ = np.linalg.qr(generator.normal(size=(4, 4)))
    assert linear_cka(b @ rotation, b) == pytest.approx(1)
    assert displacement((b @ rotation).astype(np.float32), b.astype(np.float32), np.arange(400) % 64)["value"] > 0.1
