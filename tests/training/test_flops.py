"""Operations of a training: counted, and by hand from the shapes of every batch."""

import math

import numpy as np
import pytest
from objectives.zoo import vocabulary
from training.test_zoo import data_for
from training.tiny import tiny_config

from infoflow.architectures import ModelConfig
from infoflow.objectives import UNSUPERVISED, CausalLM, DenoiseFull, Distillation, Electra, MaskedLM
from infoflow.training import LengthBucketSampler, TrainingData, build_models, count_training_flops, micro_batches

SHAPE = ModelConfig(width=16, layers=3, heads=2, feedforward=40, positions=32)
WORDS = vocabulary()
CONFIG = tiny_config(updates=5, batch_tokens=150, micro_tokens=80)


def counted(objective, config=CONFIG, updates=5, **changes):
    model = build_models([objective], SHAPE, WORDS, seed=0)[objective.name]
    return count_training_flops(objective, config, data_for(objective), model, updates=updates)


def stack(batch: int, tokens: int, read: int = 0) -> int:
    """Forward operations of L layers on padded tokens; `read` tokens of an encoder by cross-attention."""
    d, inner = SHAPE.width, SHAPE.feedforward
    rows = batch * tokens
    layer = 2 * rows * (4 * d * d + 2 * d * inner) + 4 * batch * tokens * tokens * d
    if read:
        layer += 2 * rows * 2 * d * d + 2 * batch * read * 2 * d * d + 4 * batch * tokens * read * d
    return SHAPE.layers * layer


def head(supervised: int) -> int:
    """A transform and the logits, at supervised positions alone."""
    return 2 * supervised * (SHAPE.width**2 + SHAPE.width * WORDS.size)


def by_hand(objective, data: TrainingData) -> int:
    """Three times the forward pass: a product has two gradients, each as dear as itself."""
    sampler = LengthBucketSampler(data.source.lengths, CONFIG.seed, CONFIG.batch_tokens)
    total = 0
    for update in range(1, CONFIG.updates + 1):
        for rows in micro_batches(sampler.rows(update), np.asarray(data.source.lengths), None, CONFIG.micro_tokens):
            batch = data.batch(objective, rows, ("training-noise", CONFIG.seed), sampler.epoch(update))
            num, tokens = batch.input_ids.shape
            forward = stack(num, tokens) + head(int((batch.labels != UNSUPERVISED).sum()))
            if objective.layout == "encoder-decoder":
                forward += stack(num, batch.labels.shape[1], read=tokens)
            total += 3 * forward
    return total


@pytest.mark.parametrize("objective", [MaskedLM(), CausalLM(), DenoiseFull()], ids=lambda one: one.name)
def test_operations_agree_with_the_shapes_of_every_batch(objective) -> None:
    found = counted(objective)
    assert found.total == pytest.approx(by_hand(objective, data_for(objective)), rel=1e-12)
    assert (found.updates, found.standard_error) == (5, 0.0)


def test_a_sample_of_updates_lies_near_the_whole_and_says_how_near() -> None:
    longer = tiny_config(updates=40, batch_tokens=150, micro_tokens=4096)
    whole, part = (counted(MaskedLM(), longer, updates) for updates in (40, 10))
    assert part.updates == 10
    assert part.standard_error > 0
    assert abs(part.total - whole.total) < 5 * part.standard_error
    assert part.standard_error < 0.1 * part.total
    assert math.isnan(counted(MaskedLM(), longer, updates=1).standard_error)


def test_what_is_frozen_or_small_costs_less_and_further_models_cost_something() -> None:
    masked, electra, taught = (counted(one).total for one in (MaskedLM(), Electra(), Distillation()))
    assert masked < electra < 2 * masked  # a generator of a quarter's width, and a head on every token
    assert masked / 2 < taught < 1.5 * masked  # half as many layers; the teacher has no backward pass


def test_counting_leaves_the_model_as_it_was() -> None:
    model = build_models([MaskedLM()], SHAPE, WORDS, seed=0)["masked-lm"].eval()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    count_training_flops(MaskedLM(), CONFIG, data_for(MaskedLM()), model)
    assert not model.training
    assert all(parameter.equal(before[name]) and parameter.grad is None for name, parameter in model.named_parameters())
