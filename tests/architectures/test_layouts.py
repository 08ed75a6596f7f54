"""Every layout of BERT's blocks: sizes, matched values, shared embeddings, what is exported and loaded again."""

import pytest
import torch
from objectives.zoo import VOCABULARY, mixed
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    BertConfig,
    BertForPreTraining,
    EncoderDecoderModel,
)

from infoflow.architectures import FAMILIES, ModelConfig, build
from infoflow.objectives import OBJECTIVES, make_objective
from infoflow.objectives import Vocabulary as Words

SPEC = ModelConfig(width=64, layers=6, heads=8, feedforward=256, positions=128)
THOUSAND = Words(size=1000, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)
SINGLE = {  # layout: where its embeddings and blocks stand, and those of the reference
    "decoder": ("bert.", "bert."),
    "encoder-decoder": ("encoder.", "bert."),
    "encoder-pair": ("encoder.bert.", "bert."),
    "encoder-spans": ("encoder.bert.", "bert."),
    "generator-discriminator": ("discriminator.electra.", "bert."),
    "student-teacher": ("student.bert.", "bert."),
    "bidirectional-pair": ("forwards.bert.", "bert."),
}
TWO_STACKS = ("encoder-decoder", "bidirectional-pair")
DEEP = {  # layout and `match`: the layers of the reference that it lacks
    ("encoder-decoder", "depth"): (2, 3),
    ("student-teacher", "encoder"): (1,),
    ("student-teacher", "depth"): (2, 3),
    ("bidirectional-pair", "depth"): (2, 3),
}


def size(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def of_layout(layout: str, seed: int = 0, match: str = "encoder"):
    return build("bert", layout, SHAPE, VOCABULARY, seed=seed, match=match).eval()


def test_sizes_are_those_of_hugging_face_s_models() -> None:
    found = {layout: size(build("bert", layout, SPEC, THOUSAND)) for layout in FAMILIES["bert"].layouts}
    assert found["encoder"] == found["decoder"] == 377_640
    assert found["encoder-decoder"] == 850_600
    assert found["encoder-pair"] == 381_930
    shape = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 256}
    theirs = BertForPreTraining(BertConfig(vocab_size=1000, max_position_embeddings=128, **shape))
    assert size(theirs) == 381_930
    # Places 20 x 200, two blocks (Linear, LayerNorm), a bias for each id.
    boundary = 20 * 200 + (2 * 64 + 200) * 64 + 64 + 64 * 64 + 64 + 2 * 2 * 64 + 1000
    assert found["encoder-spans"] == 377_640 + boundary
    joint = build("bert", "generator-discriminator", SPEC, THOUSAND)
    encoder = 372_352  # embeddings and blocks, as the table has it for the encoder of a pair
    assert size(joint.discriminator.electra) == encoder
    assert size(joint.discriminator) == encoder + 64 * 64 + 64 + 64 + 1
    generator = joint.generator.config
    assert (generator.hidden_size, generator.intermediate_size, generator.num_hidden_layers) == (16, 64, 6)
    assert generator.num_attention_heads == 1


@pytest.mark.parametrize("layout", SINGLE)
@pytest.mark.parametrize("match", ["encoder", "depth"])
def test_the_source_stack_is_the_reference_s_bit_for_bit(layout, match) -> None:
    reference = dict(of_layout("encoder", 5, match).named_parameters())
    model = dict(of_layout(layout, 5, match).named_parameters())
    prefix, in_reference = SINGLE[layout]
    shared = [name for name in model if name.startswith(prefix)]
    for name in shared:
        assert torch.equal(model[name], reference[in_reference + name.removeprefix(prefix)]), name
    missing = {in_reference + name.removeprefix(prefix) for name in shared} ^ {n for n in reference if n[:4] == "bert"}
    lacks = {int(name.split(".")[3]) for name in missing}
    assert lacks == set(DEEP.get((layout, match), ()))
    if layout in ("encoder-pair", "encoder-spans"):  # the masked LM's head too
        heads = [name for name in reference if name.startswith("cls.")]
        assert heads
        assert all(torch.equal(model["encoder." + name], reference[name]) for name in heads)


def test_other_seeds_give_other_values_and_building_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    for layout in FAMILIES["bert"].layouts:
        one, other = dict(of_layout(layout, 1).named_parameters()), dict(of_layout(layout, 2).named_parameters())
        again = dict(of_layout(layout, 1).named_parameters())
        # Output vectors of static ones begin at 0.
        weights = [name for name in one if one[name].ndim == 2 and name != "output_embeddings.weight"]
        assert all(not torch.equal(one[name], other[name]) for name in weights)
        assert all(torch.equal(one[name], again[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), before)


def test_new_heads_begin_as_the_others_do() -> None:
    shape = ModelConfig(width=64, layers=1, heads=2, feedforward=32, positions=64)
    pair, spans = (build("bert", layout, shape, VOCABULARY) for layout in ("encoder-pair", "encoder-spans"))
    for weight in (pair.pooler.weight, spans.boundary[0].weight, spans.places.weight):
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert abs(float(weight.detach().mean())) < 0.002
    for bias in (pair.pooler.bias, pair.pair_head.bias, spans.boundary[0].bias, spans.boundary_bias):
        assert not bias.any()


def test_embeddings_are_shared_where_they_should_be() -> None:
    joint = of_layout("generator-discriminator")
    words = joint.discriminator.electra.embeddings.word_embeddings.weight
    assert joint.generator.electra.embeddings.word_embeddings.weight is words
    assert joint.generator.generator_lm_head.weight is words
    for layout in ("encoder-pair", "encoder-spans"):
        model = of_layout(layout).encoder
        assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    both = of_layout("encoder-decoder")
    decoder = both.decoder.bert.embeddings.word_embeddings.weight
    assert both.decoder.cls.predictions.decoder.weight is decoder
    assert both.encoder.embeddings.word_embeddings.weight is not decoder


AUTO = {
    "encoder": AutoModelForMaskedLM,
    "decoder": AutoModelForCausalLM,
    "encoder-decoder": EncoderDecoderModel,
    "encoder-pair": AutoModelForMaskedLM,
    "encoder-spans": AutoModelForMaskedLM,
    "generator-discriminator": AutoModelForPreTraining,
    "student-teacher": AutoModelForMaskedLM,
    "bidirectional-pair": AutoModelForCausalLM,
    "static": AutoModel,
}


@torch.no_grad()
@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_exported_is_loaded_by_an_auto_class_with_equal_outputs(name, tmp_path) -> None:
    objective = make_objective(name)
    module = of_layout(objective.layout, seed=2)
    part = objective.exported(module)
    part.save_pretrained(tmp_path)
    loaded, report = AUTO[objective.layout].from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is type(part)
    if objective.layout != "encoder-decoder":  # loading adds a pooler there, which the library's loader takes away
        assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor(mixed(20)[None])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if objective.layout == "encoder-decoder" else {})}
    if objective.layout != "static":
        torch.testing.assert_close(loaded.eval()(**inputs).logits, part(**inputs).logits, rtol=0, atol=1e-6)
    if objective.layout != "encoder-decoder":
        states = AutoModel.from_pretrained(tmp_path).eval()(input_ids=ids).last_hidden_state
        torch.testing.assert_close(states, part.base_model(input_ids=ids).last_hidden_state, rtol=0, atol=1e-6)
    kept = part.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in loaded.state_dict().items() if name in kept)


@pytest.mark.parametrize("width", [4, 12, 193, 772])
def test_a_generator_of_any_width_has_heads_that_divide_it(width) -> None:
    """A quarter of 772 is 193, with three heads of 64: more than divide it."""
    shape = ModelConfig(width=width, layers=1, heads=1, feedforward=8, positions=8)
    generator = build("bert", "generator-discriminator", shape, VOCABULARY).generator.config
    assert generator.hidden_size == width // 4
    assert generator.hidden_size % generator.num_attention_heads == 0


def test_a_generator_has_heads_of_64_where_its_width_allows() -> None:
    shape = ModelConfig(width=1024, layers=1, heads=16, feedforward=8, positions=8)
    generator = build("bert", "generator-discriminator", shape, VOCABULARY).generator.config
    assert (generator.hidden_size, generator.num_attention_heads, generator.intermediate_size) == (256, 4, 2)


def test_both_directions_begin_alike_and_share_embeddings_and_head() -> None:
    pair, reference = of_layout("bidirectional-pair", 5), dict(of_layout("encoder", 5).named_parameters())
    words = pair.forwards.bert.embeddings.word_embeddings.weight
    assert pair.backwards.bert.embeddings.word_embeddings.weight is words
    assert pair.backwards.cls is pair.forwards.cls
    assert pair.forwards.cls.predictions.decoder.weight is words
    for stack in (pair.forwards, pair.backwards):
        own = dict(stack.named_parameters())
        assert own.keys() == reference.keys()
        assert all(torch.equal(value, reference[name]) for name, value in own.items())
    inner = [p for name, p in pair.backwards.named_parameters() if ".layer." in name or "position" in name]
    assert not {id(p) for p in inner} & {id(p) for p in pair.forwards.parameters()}


def test_static_vectors_begin_as_word2vec_s() -> None:
    model = of_layout("static")
    inputs, outputs = model.input_embeddings.weight.detach(), model.output_embeddings.weight.detach()
    assert inputs.shape == outputs.shape == (VOCABULARY.size, 16)
    assert not outputs.any()
    assert inputs.abs().max() <= 0.5 / 16
    assert float(inputs.std()) == pytest.approx(1 / 16 / 12**0.5, rel=0.05)  # of a uniform distribution
    ids = torch.tensor([[10, 11, 10]])
    assert torch.equal(model(ids).last_hidden_state[0], inputs[ids[0]])
