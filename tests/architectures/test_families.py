"""ALBERT, Longformer and GPT-2 in every layout: matched values, losses written out, what is exported and read again."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from objectives.test_every_objective import LENGTHS, batch_for
from objectives.zoo import VOCABULARY, mixed
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForTokenClassification

from infoflow.architectures import FAMILIES, EncoderLayout, ModelConfig, build
from infoflow.dynamics import Cell, find_cells
from infoflow.models import load_model
from infoflow.objectives import OBJECTIVES, make_objective

SHAPE = ModelConfig(width=16, layers=4, heads=2, feedforward=32, positions=64, activation="gelu")
ENCODERS = ("albert", "longformer")
OF_ENCODERS = ("masked-lm", "masked-lm-nsp", "masked-lm-sop", "spanbert", "electra", "distillation")
CASES = [*itertools.product(ENCODERS, OF_ENCODERS), ("gpt2", "bilm")]
PLACES = {  # layout: where the model that is exported stands
    "encoder-pair": "encoder.",
    "encoder-spans": "encoder.",
    "student-teacher": "student.",
    "generator-discriminator": "discriminator.",
    "bidirectional-pair": "forwards.",
}
AUTO = {"generator-discriminator": AutoModelForTokenClassification, "bidirectional-pair": AutoModelForCausalLM}


def made(family: str, name: str, seed: int = 0):
    """A model of the family in the layout of an objective, as it is in evaluation."""
    return build(family, OBJECTIVES[name].layout, SHAPE, VOCABULARY, seed=seed).eval()


def parameters_of(module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters())


def spread(module, deviation: float = 0.3):
    """Weights far enough apart that outputs tell them apart."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" not in name.lower():
                parameter.add_(deviation * torch.randn(parameter.shape, generator=generator))
    return module


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Sum over supervised positions, one at a time."""
    places = (labels != -100).nonzero().tolist()
    return sum(float(-logits[row, at].log_softmax(-1)[labels[row, at]]) for row, at in places)


@pytest.mark.parametrize(("family", "name"), [case for case in CASES if case[1] != "masked-lm"])
def test_what_is_measured_begins_as_the_family_s_reference_bit_for_bit(family, name) -> None:
    layout, base = OBJECTIVES[name].layout, {"gpt2": "transformer"}.get(family, family)
    reference = parameters_of(build(family, FAMILIES[family].layouts[0], SHAPE, VOCABULARY, seed=5))
    model = parameters_of(made(family, name, seed=5))
    prefix = PLACES[layout] + base + "."
    shared = [one for one in model if one.startswith(prefix)]
    assert len(shared) > 10
    for one in shared:
        assert torch.equal(model[one], reference[one.removeprefix(PLACES[layout])]), one


@torch.no_grad()
@pytest.mark.parametrize(("family", "name"), CASES)
def test_what_is_exported_is_read_by_transformers_and_by_infoflow(family, name, tmp_path) -> None:
    objective = make_objective(name)
    part = objective.exported(spread(made(family, name)))
    part.save_pretrained(tmp_path)
    loaded = load_model(tmp_path).module
    ids, mask = torch.tensor(mixed(20)[None]), torch.ones(1, 22, dtype=torch.long)
    expected = part(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(loaded(input_ids=ids, attention_mask=mask).logits, expected, rtol=0, atol=1e-5)
    plain = AUTO.get(objective.layout, AutoModelForMaskedLM).from_pretrained(tmp_path).eval()
    assert type(plain) is type(part)
    glob = {"global_attention_mask": (torch.arange(22) == 0).long()[None]} if family == "longformer" else {}
    found = plain(input_ids=ids, attention_mask=mask, **glob).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    states = AutoModel.from_pretrained(tmp_path).eval()(input_ids=ids, attention_mask=mask, **glob).last_hidden_state
    ours = part.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(states, ours, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("family", "name"), CASES)
def test_padding_and_the_size_of_batches_change_no_loss(family, name) -> None:
    objective, module, texts = make_objective(name), spread(made(family, name)), [mixed(n, n) for n in LENGTHS]
    batch = batch_for(objective, texts)
    whole = objective.loss(module, batch, batch.noise)
    alone = [batch_for(objective, [text], [number]) for number, text in enumerate(texts)]
    each = [objective.loss(module, one, one.noise) for one in alone]
    for term, found in whole.items():
        assert found.count == sum(one[term].count for one in each)
        assert float(found.total) == pytest.approx(sum(float(one[term].total) for one in each), rel=1e-4)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_every_term_teaches_all_that_is_trained(family, name) -> None:
    objective, module = make_objective(name), made(family, name)
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    sum(term.total for term in objective.loss(module, batch, batch.noise).values()).backward()
    assert [name for name, p in module.named_parameters() if p.grad is None and p.requires_grad] == []


@torch.no_grad()
@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("name", ["masked-lm-nsp", "masked-lm-sop"])
def test_losses_of_pairs_are_those_of_full_logits(family, name) -> None:
    objective, module = make_objective(name), spread(made(family, name))
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    inputs = {"attention_mask": batch.attention_mask, "token_type_ids": batch["token_type_ids"]}
    said = module.encoder(input_ids=batch.input_ids, output_hidden_states=True, **inputs)
    found = objective.loss(module, batch, batch.noise)
    assert float(found["masked-lm"].total) == pytest.approx(cross_entropy(said.logits, batch.labels), rel=1e-4)
    first = said.hidden_states[-1][:, 0]
    pooled = torch.tanh(first @ module.pooler.weight.T + module.pooler.bias)
    answer = (pooled @ module.pair_head.weight.T + module.pair_head.bias).log_softmax(-1)
    asked = batch["pair"].tolist()
    assert float(found[objective.question].total) == pytest.approx(
        -sum(float(answer[row, true]) for row, true in enumerate(asked)), rel=1e-4
    )


@torch.no_grad()
@pytest.mark.parametrize("family", ENCODERS)
def test_losses_of_spans_are_those_of_full_logits(family) -> None:
    objective, module = make_objective("spanbert"), spread(made(family, "spanbert"))
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    said = module.encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True)
    found, states = objective.loss(module, batch, batch.noise), said.hidden_states[-1]
    assert float(found["masked-lm"].total) == pytest.approx(cross_entropy(said.logits, batch.labels), rel=1e-4)
    words, total = module.encoder.get_input_embeddings().weight, 0.0
    for row, at in (batch["place"] != -100).nonzero().tolist():
        sides = [states[row, batch[side][row, at]] for side in ("left", "right")]
        state = module.boundary(torch.cat([*sides, module.places.weight[batch["place"][row, at]]]))
        logits = torch.stack([state @ word for word in words]) + module.boundary_bias
        total -= float(logits.log_softmax(-1)[batch.labels[row, at]])
    assert found["span-boundary"].count
    assert float(found["span-boundary"].total) == pytest.approx(total, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ENCODERS)
def test_a_student_is_asked_for_what_full_logits_of_its_teacher_say(family) -> None:
    objective, module = make_objective("distillation"), spread(made(family, "distillation"))
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "output_hidden_states": True}
    student, teacher = module.student(**inputs), module.teacher(**inputs)
    expected = {"masked-lm": cross_entropy(student.logits, batch.labels), "teacher": 0.0, "cosine": 0.0}
    for row, at in batch.real.nonzero().tolist():
        told, said = ((one.logits[row, at] / 2).log_softmax(-1) for one in (teacher, student))
        expected["teacher"] += 4 * float((told.exp() * (told - said)).sum())
        ends = [one.hidden_states[-1][row, at] for one in (student, teacher)]
        expected["cosine"] += 1 - float(F.cosine_similarity(*ends, dim=0))
    found = {term: float(one.total) for term, one in objective.loss(module, batch, batch.noise).items()}
    assert found == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ENCODERS)
def test_a_student_begins_with_every_other_layer_of_what_its_teacher_learned(family) -> None:
    module = made(family, "distillation")
    learned = spread(build(family, "encoder", SHAPE, VOCABULARY, seed=8).eval())
    module.learn_from(learned)
    taught, student = parameters_of(learned), parameters_of(module.student)
    assert all(torch.equal(value, taught[name]) for name, value in parameters_of(module.teacher).items())
    assert not any(p.requires_grad for p in module.teacher.parameters())
    assert (module.student.config.num_hidden_layers, module.teacher.config.num_hidden_layers) == (2, 4)
    for name, value in student.items():
        layers = [f".layer.{number}." for number in range(2) if f".layer.{number}." in name]
        source = name.replace(layers[0], f".layer.{2 * int(layers[0].split('.')[2])}.") if layers else name
        assert torch.equal(value, taught[source]), name
    ids = torch.tensor(mixed(20)[None])
    states = module.student.base_model(input_ids=ids, output_hidden_states=True).hidden_states
    full = learned.base_model(input_ids=ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[1], full[1])
    if family == "albert":  # the one layer, half as often
        torch.testing.assert_close(states[2], full[2])


@torch.no_grad()
@pytest.mark.parametrize("family", ENCODERS)
def test_a_discriminator_has_one_logit_a_token_and_shares_its_generator_s_words(family) -> None:
    objective, module = make_objective("electra"), spread(made(family, "electra"))
    words = module.discriminator.get_input_embeddings().weight
    assert module.generator.get_input_embeddings().weight is words
    assert module.generator.generator_lm_head.weight is words
    assert module.generator.config.hidden_size == 4
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    answers = objective.answers(module, batch, batch.noise)["replaced-token AUC"]
    found = objective.loss(module, batch, batch.noise)["replaced-token"]
    assert found.count == len(answers.scores) == int(batch.real.sum())
    scores, truth = torch.tensor(answers.scores), torch.tensor(answers.truth).bool()
    expected = -torch.where(truth, scores.sigmoid().log(), (-scores).sigmoid().log()).sum()
    assert float(found.total) == pytest.approx(float(expected), rel=1e-4)


@torch.no_grad()
def test_a_bilm_of_gpt2_is_two_causal_models_with_one_table_and_head() -> None:
    objective, module = make_objective("bilm"), made("gpt2", "bilm", seed=5)
    begin, other = parameters_of(module.forwards), parameters_of(module.backwards)
    assert all(torch.equal(value, other[name]) for name, value in begin.items())
    assert module.backwards.lm_head.weight is module.forwards.transformer.wte.weight
    assert module.backwards.transformer.wte.weight is module.forwards.transformer.wte.weight
    assert module.backwards.transformer.wpe.weight is not module.forwards.transformer.wpe.weight
    spread(module)
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    ahead = module.forwards(input_ids=batch.input_ids).logits
    back = module.backwards(input_ids=batch["reversed_ids"]).logits
    found = objective.loss(module, batch, batch.noise)
    assert float(found["forward"].total) == pytest.approx(cross_entropy(ahead, batch.labels), rel=1e-4)
    assert float(found["backward"].total) == pytest.approx(cross_entropy(back, batch["reversed_labels"]), rel=1e-4)


def test_projections_of_global_tokens_are_their_head_s() -> None:
    """So that every parameter of a Longformer has its part of the loss change."""
    model = load_model(build("longformer", "encoder", SHAPE, VOCABULARY))
    cells, names = find_cells(model.module, model.anatomy), [name for name, _ in model.module.named_parameters()]
    marked = [torch.zeros_like(p) for p in model.module.parameters()]
    attention = "longformer.encoder.layer.1.attention.self."
    for part in ("query", "key", "value"):
        marked[names.index(f"{attention}{part}_global.weight")][8:] = 1.0  # rows of head 1
        marked[names.index(f"{attention}{part}_global.bias")][8:] = 1.0
    touched = {cell: value for cell, value in zip(cells.cells, cells.sums(marked).tolist(), strict=True) if value}
    assert touched == {Cell(part, "encoder", 1, "self", 1): 8.0 * 17 for part in ("query", "key", "value")}
    assert cells.sizes.sum() == sum(p.numel() for p in model.module.parameters())


def test_every_layout_of_encoders_is_asked_for_by_an_objective() -> None:
    asked = {OBJECTIVES[name].layout for name in OF_ENCODERS}
    assert asked == set(EncoderLayout.__args__)
    assert all(FAMILIES[family].layouts == FAMILIES["albert"].layouts for family in ENCODERS)


@torch.no_grad()
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("width", [0, 4, 16])
def test_each_of_albert_s_two_techniques_alone(shared: bool, width: int, tmp_path) -> None:
    shape = replace(SHAPE, share_layers=shared, embedding_width=width)
    model = spread(build("albert", "encoder", shape, VOCABULARY).eval())
    inner = width or SHAPE.width // 2
    assert model.get_input_embeddings().weight.shape == (VOCABULARY.size, inner)
    blocks = [name for name, _ in model.named_parameters() if name.endswith(".attention.query.weight")]
    assert len(blocks) == (1 if shared else SHAPE.layers)
    model.save_pretrained(tmp_path)
    loaded, ids = load_model(tmp_path), torch.tensor(mixed(20)[None])
    torch.testing.assert_close(loaded.module(ids).logits, model(ids).logits)
    assert loaded.anatomy.stack("encoder").shared is shared


@torch.no_grad()
def test_a_student_of_unshared_albert_has_every_other_layer() -> None:
    shape = replace(SHAPE, share_layers=False)
    module = build("albert", "student-teacher", shape, VOCABULARY)
    learned = spread(build("albert", "encoder", shape, VOCABULARY, seed=8))
    module.learn_from(learned)
    names = (f"albert.encoder.albert_layer_groups.{n}.albert_layers.0.ffn.weight" for n in (1, 2))
    student, taught = (parameters_of(module.student)[next(names)], parameters_of(learned)[next(names)])
    assert torch.equal(student, taught)
