"""Sentences packed into rows against the same sentences one by one; when a set's own batches are used instead."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from training.tiny import tiny_data, tiny_model

from infoflow.dynamics import FlatParameters, evaluation_set, pass_gradients
from infoflow.models import load_model
from infoflow.objectives import UNSUPERVISED, Batch, CausalLM, MaskedLM, Translation
from infoflow.subjects.allocation.measures._packing import _ALIGNMENT, PackReader, packed
from infoflow.subjects.allocation.measures._targets import passes_of

OBJECTIVES = [MaskedLM(), CausalLM(), Translation()]
READERS = [PackReader(module="a", causal=False), PackReader(module="b", causal=True)]


def prepared(objective, dtype=torch.float64, parts: int = 2):
    """A model with larger weights than fresh ones, to which positions and contexts matter."""
    module = tiny_model(objective).to(dtype).eval()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    one = evaluation_set("train", objective, tiny_data(), 150, parts=parts, micro_tokens=60)
    return module, FlatParameters(module), load_model(tiny_model(objective)).anatomy, one


def one_by_one(module, objective, batches):
    """Loss and gradient of every sentence by itself, without padding."""
    loss, gradients = 0.0, [torch.zeros_like(p) for p in module.parameters()]
    for batch in batches:
        for row in range(len(batch.input_ids)):
            source = batch.input_ids.shape[1] if batch.attention_mask is None else int(batch.attention_mask[row].sum())
            target = batch.decoder_input_ids
            tensors = {
                "input_ids": batch.input_ids[row : row + 1, :source],
                "labels": batch.labels[row : row + 1] if target is not None else batch.labels[row : row + 1, :source],
                **({} if target is None else {"decoder_input_ids": target[row : row + 1]}),
            }
            alone = Batch(tensors=tensors, source_tokens=source, target_tokens=0, supervised_tokens=0)
            total = objective.loss(module, alone, alone.noise)[objective.name].total
            loss += float(total.detach())
            found = torch.autograd.grad(total, list(module.parameters()), materialize_grads=True)
            gradients = [a + b for a, b in zip(gradients, found, strict=True)]
    return loss, torch.cat([g.reshape(-1) for g in gradients])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_packed_sentences_are_those_one_by_one(objective) -> None:
    module, flat, anatomy, one = prepared(objective)
    for passes, batches in zip(passes_of(module, flat, anatomy, one), one.parts, strict=True):
        assert all(each.arguments for each in passes)
        losses, gradients = pass_gradients(module, flat, one.objective, passes, set())
        loss, gradient = one_by_one(module, one.objective, batches)
        assert losses[objective.name] == pytest.approx(loss, rel=1e-6)  # the cross-entropy is float32
        torch.testing.assert_close(gradients[objective.name], gradient, rtol=1e-5, atol=1e-5)


def sentences(number: int = 60, seed: int = 0) -> Batch:
    """Sentences of 1 to 40 tokens and translations of 1 to 20, numbered from 1: token = number of the sentence."""
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(1, 41, number), rng.integers(1, 21, number)
    numbers = torch.arange(1, number + 1)[:, None]
    source = torch.arange(40) < torch.from_numpy(sources)[:, None]
    target = torch.arange(20) < torch.from_numpy(targets)[:, None]
    tensors = {
        "input_ids": source * numbers,
        "attention_mask": source.long(),
        "decoder_input_ids": target * numbers,
        "labels": torch.where(target, numbers, UNSUPERVISED),
    }
    return Batch(
        tensors=tensors,
        source_tokens=int(sources.sum()),
        target_tokens=int(targets.sum()),
        supervised_tokens=int(targets.sum()),
    )


def pieces(passes) -> list[tuple[int, int, int]]:
    """Number, source length and target length of every sentence, read off the rows."""
    found = []
    for each in passes:
        batch = each.batch
        for row in range(len(batch.input_ids)):
            for number in set(batch.input_ids[row].tolist()) - {0}:
                places = [tokens[row] == number for tokens in (batch.input_ids, batch.decoder_input_ids)]
                assert torch.equal(batch.labels[row] == number, places[1])
                for place, reader in zip(places, READERS, strict=True):
                    positions = each.arguments[reader.module]["position_ids"][row][place]
                    assert positions.tolist() == list(range(int(place.sum())))
                found.append((number, int(places[0].sum()), int(places[1].sum())))
    return found


@pytest.mark.parametrize("budget", [1, 200, 10**6])
def test_every_sentence_lies_in_one_place_within_the_budget(budget: int) -> None:
    batch = sentences()
    lengths = zip(batch.attention_mask.sum(1).tolist(), (batch.labels > 0).sum(1).tolist(), strict=True)
    expected = [(number, *both) for number, both in enumerate(lengths, 1)]
    passes = packed([batch], READERS, budget, slice(None), torch.float32)
    assert sorted(pieces(passes)) == expected
    for each in passes:
        sizes = [each.batch.input_ids.numel(), each.batch.decoder_input_ids.numel()]
        assert sum(sizes) <= budget or len(each.batch.input_ids) == 1
        assert each.batch.input_ids.shape[1] % _ALIGNMENT == each.batch.decoder_input_ids.shape[1] % _ALIGNMENT == 0
    if budget == 10**6:
        positions = sum(each.batch.input_ids.numel() for each in passes)
        assert len(passes) == 1
        assert positions < 1.1 * batch.source_tokens
    shares = [pieces(packed([batch], READERS, budget, slice(n, None, 3), torch.float32)) for n in range(3)]
    assert sorted(itertools.chain(*shares)) == expected
    assert packed([batch], READERS, budget, slice(60, None, 61), torch.float32) == ()


def test_a_position_sees_its_own_sentence_only() -> None:
    (each,) = packed([sentences()], READERS, 10**6, slice(None), torch.float32)
    encoder, decoder = (each.arguments[reader.module] for reader in READERS)
    source, target = each.batch.input_ids, each.batch.decoder_input_ids
    for mask, asking, asked, causal in (
        (encoder["attention_mask"], source, source, False),
        (decoder["attention_mask"], target, target, True),
        (decoder["encoder_attention_mask"], target, source, False),
    ):
        for row in range(len(source)):
            for place, number in enumerate(asking[row].tolist()):
                if number:
                    allowed = (asked[row] == number) & ((torch.arange(asked.shape[1]) <= place) | (not causal))
                    assert torch.equal(mask[row, 0, place] == 0, allowed)
        assert mask.unique().tolist() == [torch.finfo(torch.float32).min, 0.0]


def without(argument: str, hidden: bool):
    """A `forward` that does not use an argument; `hidden`: though it takes it."""

    def deaf(module, anatomy) -> None:
        stack = module.base_model
        forward = stack.forward

        def takes_it(input_ids=None, attention_mask=None, position_ids=None, **options):
            given = {"attention_mask": attention_mask, "position_ids": position_ids} | {argument: None}
            return forward(input_ids=input_ids, **given, **options)

        def does_not_take_it(input_ids=None, attention_mask=None, **options):
            return forward(input_ids=input_ids, attention_mask=attention_mask, **options)

        stack.forward = takes_it if hidden else does_not_take_it

    return deaf


@pytest.mark.parametrize(
    "deaf", [without("position_ids", False), without("position_ids", True), without("attention_mask", True)]
)
def test_a_model_that_cannot_keep_sentences_apart_gets_the_batches_as_they_are(deaf) -> None:
    module, flat, anatomy, one = prepared(CausalLM(), torch.float32)
    assert all(each.arguments for part in passes_of(module, flat, anatomy, one) for each in part)
    deaf(module, anatomy)
    for part, batches in zip(passes_of(module, flat, anatomy, one), one.parts, strict=True):
        assert [each.batch for each in part] == list(batches)
        assert not any(each.arguments for each in part)


def test_untrained_weights_tell_too_whether_packing_changes_anything() -> None:
    module, anatomy = tiny_model(MaskedLM()).eval(), load_model(tiny_model(MaskedLM())).anatomy
    one = evaluation_set("train", MaskedLM(), tiny_data(), 150, parts=2)
    assert all(each.arguments for part in passes_of(module, FlatParameters(module), anatomy, one) for each in part)
    without("position_ids", True)(module, anatomy)
    assert not any(each.arguments for part in passes_of(module, FlatParameters(module), anatomy, one) for each in part)


def test_labels_of_whole_sentences_are_not_packed() -> None:
    module, flat, anatomy, one = prepared(CausalLM())

    def cut(batch: Batch) -> Batch:
        return dataclasses.replace(batch, tensors={**batch.tensors, "labels": batch.labels[:, :1]})

    parts = tuple(tuple(map(cut, part)) for part in one.parts)
    passes = passes_of(module, flat, anatomy, dataclasses.replace(one, parts=parts))
    assert not any(each.arguments for part in passes for each in part)
