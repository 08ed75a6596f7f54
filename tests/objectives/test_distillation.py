"""Distillation: its three terms token by token, the draw of its masks one by one, and what the student begins with."""

import math

import numpy as np
import pytest
import torch
from objectives.test_every_objective import batch_for
from objectives.zoo import VOCABULARY, framed, mixed, same_distribution

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import stream
from infoflow.objectives import Distillation, Example, MaskedLM, Noise

SHAPE = ModelConfig(width=16, layers=4, heads=2, feedforward=32, positions=64, dropout=0.2)


@pytest.fixture
def pupils():
    """A student of a teacher with random weights, and the teacher that it learned from."""
    torch.manual_seed(3)
    teacher = build("bert", "encoder", SHAPE, VOCABULARY)
    module = build("bert", "student-teacher", SHAPE, VOCABULARY)
    for parameter in teacher.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    module.learn_from(teacher)
    return module, teacher


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max()
    return logits - top - math.log(sum(math.exp(each - top) for each in logits))


def explicit_terms(module, batch, temperature: float, masked_only: bool) -> dict[str, tuple[float, int]]:
    """Sum and count of each term, one token at a time, in double precision."""
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "output_hidden_states": True}
    with torch.no_grad():
        student, teacher = (model.double().eval()(**inputs) for model in (module.student, module.teacher))
    sums = {"masked-lm": [0.0, 0], "teacher": [0.0, 0], "cosine": [0.0, 0]}
    for row in range(len(batch)):
        for place in range(batch.input_ids.shape[1]):
            if not batch.real[row, place]:
                continue
            said, wanted = student.logits[row, place].numpy(), teacher.logits[row, place].numpy()
            label = int(batch.labels[row, place])
            if label != -100:
                sums["masked-lm"][0] -= log_softmax(said)[label]
                sums["masked-lm"][1] += 1
            if label != -100 or not masked_only:
                p, q = log_softmax(wanted / temperature), log_softmax(said / temperature)
                sums["teacher"][0] += temperature**2 * sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))
                sums["teacher"][1] += 1
            one, other = (output.hidden_states[-1][row, place].numpy() for output in (student, teacher))
            sums["cosine"][0] += 1 - one @ other / math.sqrt((one @ one) * (other @ other))
            sums["cosine"][1] += 1
    return {name: (total, count) for name, (total, count) in sums.items()}


@pytest.mark.parametrize("masked_only", [False, True])
@pytest.mark.parametrize("temperature", [2.0, 1.0])
def test_every_term_is_its_formula(pupils, masked_only: bool, temperature: float) -> None:
    module, _ = pupils
    objective = Distillation(temperature=temperature, masked_only=masked_only)
    batch = batch_for(objective, [mixed(12), mixed(5, 1), mixed(9, 2)])
    found = objective.loss(module.eval(), batch, Noise())
    found = {name: (float(term.total.detach()), term.count) for name, term in found.items()}
    wanted = explicit_terms(module, batch, temperature, masked_only)
    assert found.keys() == wanted.keys() == objective.term_weights.keys()
    assert {name: count for name, (_, count) in found.items()} == objective.counts(batch)
    for name, (total, count) in wanted.items():
        assert found[name] == (pytest.approx(total, rel=2e-5), count), name
    assert all(total > 0.1 for total, _ in wanted.values())


def test_the_terms_have_the_released_weights() -> None:
    assert Distillation().weighted({"masked-lm": 1.0, "teacher": 10.0, "cosine": 100.0}) == 2 * 1 + 5 * 10 + 100


def one_by_one(tokens: np.ndarray, rate: float):
    """Positions drawn one after another, each with a chance in proportion to its weight among those left."""

    def draw(generator) -> tuple[int, ...]:
        left = [place for place, token in enumerate(tokens.tolist()) if not VOCABULARY.is_special[token]]
        chosen = []
        for _ in range(math.ceil(rate * len(tokens))):
            weights = np.array([float(VOCABULARY.counts[tokens[place]]) ** -0.7 for place in left])
            chosen.append(left.pop(int(generator.choice(len(left), p=weights / weights.sum()))))
        return tuple(sorted(chosen))

    return draw


def test_rare_tokens_are_masked_more_often_as_if_drawn_one_by_one() -> None:
    tokens = framed(6, 12, 30, 55, 80)  # counts 7, 13, 31, 56, 81
    outcome = lambda one: tuple(np.flatnonzero(one.selected).tolist())  # noqa: E731 (one line, used once)
    same_distribution(Distillation(rate=0.3), tokens, one_by_one(tokens, 0.3), outcome)


@pytest.mark.parametrize("length", [1, 2, 13, 40])
def test_how_many_are_masked(length: int) -> None:
    found = Distillation().corrupt(Example(texts=(mixed(length),)), stream("count", length), VOCABULARY)
    assert found.selected.sum() == min(math.ceil(0.15 * (length + 2)), length)


def test_the_student_begins_with_every_other_layer_of_its_teacher(pupils) -> None:
    module, teacher = pupils
    theirs, own = teacher.state_dict(), module.student.state_dict()
    assert len(module.student.bert.encoder.layer) == 2
    for name, value in own.items():
        layer = name.split("encoder.layer.")[-1].split(".")[0]
        source = name if not layer.isdigit() else name.replace(f"layer.{layer}.", f"layer.{2 * int(layer)}.")
        assert torch.equal(value, theirs[source]), name
    assert all(torch.equal(value, theirs[name]) for name, value in module.teacher.state_dict().items())


def test_the_teacher_learns_nothing_and_drops_nothing(pupils) -> None:
    module, _ = pupils
    objective = Distillation()
    batch = batch_for(objective, [mixed(20), mixed(15, 1)])
    module.train()
    torch.manual_seed(0)
    first = objective.loss(module, batch, Noise())
    sum(term.total for term in first.values()).backward()
    assert all(parameter.grad is None for parameter in module.teacher.parameters())
    assert all(parameter.grad is not None for parameter in module.student.parameters())
    assert not module.teacher.training
    assert module.student.training
    before = module.teacher(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    again = module.teacher(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    assert torch.equal(before, again)


def test_of_a_student_that_is_its_teacher_only_the_masked_lm_has_something_to_say(pupils) -> None:
    module, teacher = pupils
    module.student = teacher
    objective = Distillation()
    batch = batch_for(objective, [mixed(20), mixed(15, 1)])
    terms = objective.loss(module.eval(), batch, Noise())
    assert float(terms["teacher"].total.detach()) == pytest.approx(0, abs=1e-4)
    assert float(terms["cosine"].total.detach()) == pytest.approx(0, abs=1e-4)
    alone = MaskedLM().loss(teacher.eval(), batch, Noise())["masked-lm"].total
    assert float(terms["masked-lm"].total.detach()) == pytest.approx(float(alone.detach()), rel=1e-6)
