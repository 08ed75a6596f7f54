"""Learned gates: sweeps that continue and resume, extreme penalties, exactly k heads, and the greedy choices."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.heads import ablate, all_heads, prune
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.pruning import (
    HardConcreteGates,
    attached,
    greedy_pruning,
    learn_gates,
    learn_subset,
    quality,
    rank_heads,
    recover,
)
from infoflow.training import TrainConfig, TrainingData, read_log

CONFIG = TrainConfig(
    updates=6, batch_tokens=128, learning_rate=1e-3, warmup=0, schedule="constant", weight_decay=0.0, device="cpu",
    save_every=2, precision="fp32",
)  # fmt: skip


@pytest.fixture
def model(matched_models):
    """A translation model of one's own, to train."""
    shared = matched_models["translation"]
    own = load_model(copy.deepcopy(shared.module).float(), tokenizer=shared.tokenizer)
    return replace(own, target_tokenizer=shared.target_tokenizer)


@pytest.fixture
def data(model, parallel_corpus):
    return TrainingData(
        source=parallel_corpus.encode(model.tokenizer, max_length=32),
        vocabulary=Vocabulary.from_tokenizer(model.tokenizer),
        target=parallel_corpus.encode(model.target_tokenizer, side="translation", max_length=32),
        target_vocabulary=Vocabulary.from_tokenizer(model.target_tokenizer),
    )


OBJECTIVE = make_objective("translation")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*gates are still between 0 and 1"),
    pytest.mark.filterwarnings("ignore:.*closed every gate"),
]


def weights(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def test_a_sweep_continues_and_an_interrupted_one_ends_alike(model, data, tmp_path):
    other = replace(model, module=copy.deepcopy(model.module))
    whole = list(learn_gates(model, OBJECTIVE, data, CONFIG, tmp_path / "whole", penalties=[0.1, 1.0], seed=3))
    sweep = learn_gates(other, OBJECTIVE, data, CONFIG, tmp_path / "cut", penalties=[0.1, 1.0], seed=3)
    next(sweep)
    sweep.close()  # the gates are off again, the folder holds one point
    assert not hasattr(other.module, "infoflow_head_gates")
    assert not any(m._forward_pre_hooks for m in other.module.modules())
    fresh = replace(model, module=copy.deepcopy(other.module))
    load = dict(zip(("a", "b"), (whole[0].values, whole[1].values), strict=True))
    assert load["a"] != load["b"]  # the second point went on from the first
    with torch.no_grad():  # the converged model again, in a new process's stead
        for name, tensor in fresh.module.state_dict().items():
            tensor.copy_(START[name])
    again = list(learn_gates(fresh, OBJECTIVE, data, CONFIG, tmp_path / "cut", penalties=[0.1, 1.0], seed=3))
    assert [point.values for point in again] == [point.values for point in whole]
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, fresh.module.state_dict()[name]), name


START: dict[str, torch.Tensor] = {}


@pytest.fixture(autouse=True)
def _remember(model):
    START.clear()
    START.update(weights(model))


def test_encoder_gates_leave_the_decoder_as_it_is(model, data, tmp_path):
    (point,) = learn_gates(model, OBJECTIVE, data, CONFIG, tmp_path, penalties=[0.1])
    assert len(point.heads) == 8
    assert {head[:2] for head in point.heads} == {("encoder", "self")}
    changed = {name for name, tensor in weights(model).items() if not torch.equal(tensor, START[name])}
    assert changed
    assert all(name.startswith("encoder.") for name in changed)
    assert all(parameter.requires_grad for parameter in model.module.parameters())
    for line in (line for line in read_log(point.folder / "log.jsonl") if "loss" in line):  # what is minimised
        assert line["loss"] == pytest.approx(line["losses"]["translation"] + 0.1 * line["losses"]["gates"], rel=1e-6)


def test_a_large_penalty_closes_every_gate_and_none_opens_them(model, data, parallel_corpus, tmp_path):
    settings = {"kinds": None, "gate_rate": 2000.0, "rest": "freeze"}
    with pytest.warns(UserWarning, match="closed every gate"):
        (dead,) = learn_gates(model, OBJECTIVE, data, CONFIG, tmp_path / "dead", penalties=[1000.0], **settings)
    assert not any(dead.alive)
    assert dead.undecided == 0
    assert dead.gates == (0.0,) * 24
    assert dead.removed == frozenset(all_heads(model.anatomy))
    assert all(torch.equal(tensor, START[name]) for name, tensor in weights(model).items())
    found = quality(model, parallel_corpus.select(range(6)), dead.removed)
    assert np.isfinite(found["scores"][0])
    assert np.isfinite(found["scores"]).mean() > 0.9  # six sentences lie in six blocks: a replicate may draw none
    with pytest.warns(UserWarning, match="24 gates are still between 0 and 1"):
        (free,) = learn_gates(model, OBJECTIVE, data, CONFIG, tmp_path / "free", penalties=[0.0], kinds=None, seed=1)
    assert free.undecided == 24  # too few steps to decide: said so, and both rules are given
    assert sum(free.alive_paper) < sum(free.alive) == 24
    assert free.removed == frozenset()  # whatever signs the gates began with


def test_a_pruned_model_computes_what_decided_gates_did(model):
    gates = HardConcreteGates(model, ["encoder-self", "decoder-cross"], seed=2)
    with torch.no_grad():
        for index, gate in enumerate(gates.gates.values()):
            gate.log_alpha.copy_(torch.tensor([-3.0, 3.0, 4.0, 5.0]).roll(index))
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    inputs = {"input_ids": ids, "decoder_input_ids": ids}
    gates.eval()
    with attached(model, gates), torch.no_grad():
        expected = model.module(**inputs).logits
    dead = [head for head, lives in zip(gates.heads, gates.alive().tolist(), strict=True) if not lives]
    assert len(dead) == 4
    with torch.no_grad():
        torch.testing.assert_close(prune(model, dead).module(**inputs).logits, expected, rtol=1e-4, atol=1e-5)
        with ablate(model, dead):
            torch.testing.assert_close(model.module(**inputs).logits, expected, rtol=1e-4, atol=1e-5)


def test_penalties_of_both_conventions(model):
    for kinds, modules in ((["encoder-self"], 2), (None, 6)):
        mean, total = (HardConcreteGates(model, kinds, convention=c).penalty() for c in ("module_mean", "sum"))
        assert mean.item() == pytest.approx(total.item() / modules)
        by_hand = sum(g.open_probability().sum().item() for g in HardConcreteGates(model, kinds).gates.values())
        assert total.item() == pytest.approx(by_hand, rel=1e-5)


def test_noise_is_shared_over_the_batch_and_drawn_anew(model):
    gates = HardConcreteGates(model, None).train()
    gates.draw()
    first = {site: gate.detach().clone() for site, gate in gates._current.items()}
    gates.draw()
    assert any(not torch.equal(first[site], gate) for site, gate in gates._current.items())
    assert all(gate.shape == (4,) for gate in first.values())


def test_exactly_k_heads_are_left(model, data, tmp_path):
    for k, straight in ((5, False), (24, True), (0, False)):
        own = replace(model, module=copy.deepcopy(model.module))
        point = learn_subset(own, OBJECTIVE, data, CONFIG, tmp_path / f"{k}", k=k, straight_through=straight)
        assert sum(point.alive) == k
        assert point.method == ("straight-through" if straight else "subset")
        assert point.undecided == 0
    with pytest.raises(UserError, match="number of gated heads, 24"):
        learn_subset(model, OBJECTIVE, data, CONFIG, tmp_path / "many", k=25)


def test_choices_are_checked(model, data, tmp_path):
    sweep = {"penalties": [0.1]}
    for change, message in (
        ({"penalties": [-1.0]}, "0 or larger"),
        ({"penalties": []}, "one or more"),
        ({**sweep, "kinds": ["cross"]}, "encoder-self, decoder-self, decoder-cross"),
        ({**sweep, "convention": "mean"}, "module_mean"),
        ({**sweep, "rest": "half"}, "auto"),
    ):
        with pytest.raises(UserError, match=message):
            list(learn_gates(model, OBJECTIVE, data, CONFIG, tmp_path, **change))


@pytest.mark.parametrize("by", ["importance", "iterative", "confidence", "relevance", "random"])
def test_greedy_curves_remove_the_least_valuable_first(model, parallel_corpus, by):
    few, rest = parallel_corpus.select(range(6)), parallel_corpus.select(range(6, 12))
    tables = greedy_pruning(model, few, rest, by=by, keep=[24, 12, 3])
    curve, heads = tables["pruning"], tables["pruned_heads"]
    assert curve["kept"].tolist() == [24, 12, 3]
    assert curve["value"].iloc[0] == pytest.approx(curve["baseline"].iloc[0])
    alive = [set(map(tuple, g.loc[g["alive"], ["stack", "kind", "layer", "head"]].to_numpy().tolist()))
             for _, g in heads.groupby("point")]  # fmt: skip
    assert alive[2] < alive[1] < alive[0]
    if by != "iterative":
        ranked = rank_heads(model, few, by)
        assert alive[1] == set(ranked[12:])


def test_greedy_numbers_are_checked(model, parallel_corpus):
    with pytest.raises(UserError, match="of removable heads, 8"):
        greedy_pruning(model, parallel_corpus, parallel_corpus, keep=[9], kinds=["encoder-self"])
    with pytest.raises(UserError, match="by must be"):
        rank_heads(model, parallel_corpus, "size")
    with pytest.raises(UserError, match="metric must be"):
        quality(model, parallel_corpus, frozenset(), "accuracy")


@pytest.mark.parametrize("frozen", [True, False])
def test_what_recovers_trains_the_decoder_unless_it_is_frozen(model, data, tmp_path, frozen):
    before, gone = weights(model), frozenset(all_heads(model.anatomy)[:2])
    recover(model, OBJECTIVE, data, CONFIG, tmp_path, removed=gone, freeze_decoder=frozen)
    after, encoder = weights(model), {id(one) for one in model.module.get_encoder().parameters()}
    names = {name: id(parameter) in encoder for name, parameter in model.module.named_parameters()}
    for name, inside in names.items():
        assert inside or torch.equal(before[name], after[name]) == frozen, name
    assert any(not torch.equal(before[name], after[name]) for name, inside in names.items() if inside)
    assert all(one.requires_grad for one in model.module.parameters())
    assert not model.module.training


def test_removed_heads_learn_nothing_while_the_rest_recovers(model, data, tmp_path):
    gone = all_heads(model.anatomy)[0]
    outputs = {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}
    (piece,) = outputs[gone[:3]].output.head(gone[3])
    before = weights(model)[piece.parameter]
    recover(model, OBJECTIVE, data, CONFIG, tmp_path, removed=frozenset([gone]))
    after = weights(model)[piece.parameter]
    mask = piece.mask(after)
    assert torch.equal(before[mask], after[mask])
    assert not torch.equal(before[~mask], after[~mask])


def test_an_interrupted_recovery_ends_alike(model, data, tmp_path, monkeypatch):
    gone = frozenset(all_heads(model.anatomy)[:1])
    first = copy.deepcopy(model.module.state_dict())
    recover(model, OBJECTIVE, data, CONFIG, tmp_path / "whole", removed=gone)
    whole, original, calls = weights(model), torch.optim.AdamW.step, []

    def step(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    model.module.load_state_dict(first)
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        with pytest.raises(KeyboardInterrupt):
            recover(model, OBJECTIVE, data, CONFIG, tmp_path / "cut", removed=gone)
    model.module.load_state_dict(first)
    recover(model, OBJECTIVE, data, CONFIG, tmp_path / "cut", removed=gone)
    assert all(torch.equal(tensor, whole[name]) for name, tensor in weights(model).items())


def test_other_heads_or_weights_have_another_recovery(model, data, tmp_path):
    first, heads = copy.deepcopy(model.module.state_dict()), all_heads(model.anatomy)
    found = {}
    for name, gone, frozen in (("two", heads[:2], False), ("others", heads[2:4], False), ("frozen", heads[:2], True)):
        model.module.load_state_dict(first)
        folder = recover(model, OBJECTIVE, data, CONFIG, tmp_path, removed=frozenset(gone), freeze_decoder=frozen)
        found[name] = (folder, weights(model))
    assert len({folder for folder, _ in found.values()}) == 3
    assert any(not torch.equal(found["two"][1][name], tensor) for name, tensor in found["others"][1].items())
    assert any(not torch.equal(found["two"][1][name], tensor) for name, tensor in found["frozen"][1].items())


def test_a_single_stack_has_no_decoder_to_freeze(matched_models, data, tmp_path):
    encoder = matched_models["masked-lm"]
    with pytest.raises(UserError, match="freeze_decoder needs an encoder-decoder"):
        recover(encoder, OBJECTIVE, data, CONFIG, tmp_path, removed=frozenset(), freeze_decoder=True)
    assert not any(tmp_path.iterdir())
