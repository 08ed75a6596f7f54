"""What attention views show of one sentence."""

import copy

import numpy as np
import pytest
import torch
import transformers

from infoflow.foundation import UserError
from infoflow.heads import quantise, restore, sentence_attention, sentence_lens
from infoflow.models import load_model, model_inputs, tap

IDS = [5, 9, 7, 9, 11, 4]
SMALL = {"vocab_size": 40, "pad_token_id": 0}


def bert():
    sizes = SMALL | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    return transformers.BertForMaskedLM(transformers.BertConfig(**sizes, max_position_embeddings=12))


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=32, n_inner=24)
    )


def llama():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, **sizes, head_dim=6, intermediate_size=24, max_position_embeddings=600)
    )


def marian():
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": 2}
    return transformers.MarianMTModel(transformers.MarianConfig(**SMALL, **sizes, **ends, max_position_embeddings=32))


def t5():
    sizes = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**SMALL, **sizes, decoder_start_token_id=0, eos_token_id=2)
    )


FAMILIES = [bert, gpt2, llama, marian, t5]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda build: build.__name__)
def model(request):
    torch.manual_seed(0)
    module = request.param()
    for parameter in module.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    return load_model(module)


def read(model):
    return sentence_attention(model, IDS, [8, 3, 12, 2] if model.task == "seq2seq" else None)


def test_the_weights_are_those_of_the_model(model):
    seen = read(model)
    ids = torch.tensor([IDS])
    decoder = None
    if model.task == "seq2seq":
        decoder = torch.tensor([[token.id for token in seen.sentence.tokens["decoder"]]])
    with torch.no_grad(), tap(model, attention=True) as tapped:
        model.module(**model_inputs(model, ids, decoder_input_ids=decoder))
    assert {(kind.stack, kind.kind) for kind in seen.kinds} == set(tapped.attention)
    for kind in seen.kinds:
        for layer, expected in zip(kind.layers, tapped.attention[kind.stack, kind.kind], strict=True):
            np.testing.assert_allclose(restore(layer.weights), expected[0].numpy(), atol=0.004)


def test_value_norms_are_those_of_each_key_s_part_of_the_output(model):
    """One key at a time: the head's output with all other keys' weights at zero, through its part of the projection."""
    seen = read(model)
    kind = seen.kinds[-1]
    attention = model.anatomy.stack(kind.stack).layers[1].attentions[kind.kind]
    calls = []
    decoder = seen.sentence.tokens.get("decoder") if model.task == "seq2seq" else None
    inputs = model_inputs(
        model,
        torch.tensor([IDS]),
        decoder_input_ids=torch.tensor([[token.id for token in decoder]]) if decoder else None,
    )
    with torch.no_grad(), tap(model, on_attention=lambda call: calls.append(call)):
        model.module(**inputs)
    (call,) = [call for call in calls if (call.stack, call.kind, call.layer) == (kind.stack, kind.kind, 1)]
    fast = call.weights * torch.from_numpy(kind.layers[1].value_norms)[:, None]
    projection = model.module.get_submodule(attention.output_projection)
    bias = projection.bias if getattr(projection, "bias", None) is not None else 0
    for head in range(attention.num_heads):
        for query in range(call.weights.shape[2]):
            for key in range(call.weights.shape[3]):
                heads = torch.zeros(attention.num_heads, call.value.shape[-1])
                heads[head] = call.weights[0, head, query, key] * call.value[0, head, key]
                written = (projection(heads.flatten()[None])[0] - bias).detach()
                assert float(fast[0, head, query, key]) == pytest.approx(float(written.norm()), rel=1e-4, abs=1e-6)


def test_products_of_queries_and_keys_give_the_weights(model):
    """Where nothing else is added to the scores."""
    for kind in read(model).kinds:
        for layer in kind.layers:
            if layer.biased:
                assert model.module.config.model_type == "t5"
                continue
            group = len(layer.query) // len(layer.key)
            scores = layer.scaling * np.einsum("htd,hsd->hts", layer.query, layer.key.repeat(group, axis=0))
            if kind.causal:
                scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
            expected = torch.tensor(scores).softmax(-1).numpy()
            np.testing.assert_allclose(restore(layer.weights), expected, atol=0.004)


def test_grouped_heads_keep_one_key_per_group():
    seen = sentence_attention(load_model(llama()), IDS)
    assert seen.kinds[0].layers[0].query.shape == (4, 6, 6)
    assert seen.kinds[0].layers[0].key.shape == (2, 6, 6)


@pytest.mark.parametrize("weight", [0.0, 1e-4, 0.002, 0.3, 1.0])
def test_a_byte_keeps_small_weights_apart_from_none(weight):
    back = restore(quantise(np.array([weight], dtype=np.float32)))[0]
    assert abs(back - weight) <= 0.004 * max(weight, 0.004) ** 0.5 + 1e-7
    assert (back > 0) == (weight > 0)


class TestText:
    def test_an_encoder_decoder_reads_the_translation_shifted(self, matched_models):
        seen = sentence_attention(matched_models["translation"], "the old cat sleeps", "le vieux chat")
        tokens = [token.text for token in seen.sentence.tokens["decoder"]]
        assert tokens == ["[CLS]", "le", "vieux", "chat"]
        source = seen.sentence.tokens["encoder"]
        assert [token.special for token in source] == [True, *[False] * (len(source) - 2), True]
        assert [(kind.stack, kind.kind) for kind in seen.kinds] == [
            ("encoder", "self"),
            ("decoder", "self"),
            ("decoder", "cross"),
        ]
        assert seen.kinds[2].layers[0].weights.shape == (4, 4, len(seen.sentence.tokens["encoder"]))
        assert not seen.sentence.own_translation

    def test_without_a_translation_it_reads_its_own(self, matched_models):
        seen = sentence_attention(matched_models["translation"], "the old cat sleeps")
        assert seen.sentence.own_translation
        assert seen.sentence.translation
        assert seen.kinds[1].layers[0].weights.shape[1] == len(seen.sentence.tokens["decoder"])

    @pytest.mark.parametrize("text", ["", "   "])
    def test_an_empty_sentence_is_refused(self, matched_models, text):
        with pytest.raises(UserError, match="The sentence is empty"):
            sentence_attention(matched_models["masked-lm"], text)

    def test_a_sentence_too_long_for_the_model_is_refused(self, matched_models):
        with pytest.raises(UserError, match=r"has 102 tokens, special ones included; .* takes at most 64"):
            sentence_attention(matched_models["masked-lm"], "the " * 100)

    def test_a_second_sentence_for_one_stack_is_refused(self, matched_models):
        with pytest.raises(UserError, match="takes no translation"):
            sentence_attention(matched_models["causal-lm"], "the cat", "le chat")


class TestTokenIds:
    def test_text_for_a_model_without_tokenizer_is_refused(self):
        with pytest.raises(UserError, match=r"has no tokenizer.*as token ids separated by spaces"):
            sentence_attention(load_model(bert()), "a sentence")

    def test_numbers_in_text_are_token_ids(self):
        seen = sentence_attention(load_model(bert()), "5 6 7")
        assert [token.text for token in seen.sentence.tokens["encoder"]] == ["5", "6", "7"]

    def test_ids_beyond_the_vocabulary_are_refused(self):
        with pytest.raises(UserError, match=r"lie in 0\.\.39"):
            sentence_attention(load_model(bert()), [5, 40])

    def test_more_tokens_than_can_be_drawn_are_refused(self):
        with pytest.raises(UserError, match="at most 512 are drawn"):
            sentence_attention(load_model(llama()), [5] * 513)

    def test_a_translation_is_needed(self):
        with pytest.raises(UserError, match="Give the translation too"):
            sentence_attention(load_model(marian()), IDS)


@pytest.fixture(scope="module")
def pairing(matched_models):
    """BERT with two token types, and a tokenizer that writes [CLS] first [SEP] second [SEP]."""
    tokenizer = matched_models["masked-lm"].tokenizer
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), **sizes, max_position_embeddings=16, initializer_range=0.5
    )
    return load_model(transformers.BertForMaskedLM(config), tokenizer=tokenizer)


def test_a_pair_is_read_with_its_token_types(pairing):
    first, second = "the old cat", "a dog sees the house"
    seen = sentence_attention(pairing, first, pair=second)
    encoded = pairing.tokenizer(first, second, return_tensors="pt", return_token_type_ids=True)
    tokens = seen.sentence.tokens["encoder"]
    assert [token.id for token in tokens] == encoded["input_ids"][0].tolist()
    assert [token.segment for token in tokens] == encoded["token_type_ids"][0].tolist()
    assert tokens[-2].text == "house"
    pairing.module.set_attn_implementation("eager")
    output = pairing.module(**encoded, output_attentions=True)
    for layer in seen.kinds[0].layers:
        assert np.abs(restore(layer.weights) - output.attentions[layer.layer][0].detach().numpy()).max() < 0.005
    best = output.logits[0].softmax(-1).max(-1).values
    lens = sentence_lens(pairing, seen.sentence)["layers"]
    assert [rows[-1][0][1] for rows in lens] == pytest.approx(best.tolist(), rel=1e-3)


def test_one_sentence_alone_has_no_segments(pairing):
    assert {token.segment for token in sentence_attention(pairing, "the old cat").sentence.tokens["encoder"]} == {None}


def test_pairs_that_cannot_be_read_are_refused(pairing, matched_models):
    for model, pair, message in [
        (matched_models["causal-lm"], "a dog", "reads no pairs"),
        (matched_models["translation"], "a dog", "reads no pairs"),
        (load_model(bert()), "5 6", "reads no pairs"),
        (pairing, " ", "second sentence is empty"),
        (pairing, "the dog " * 8, "The pair has"),
    ]:
        with pytest.raises(UserError, match=message):
            sentence_attention(model, "the cat", pair=pair)


@pytest.mark.parametrize(
    ("pattern", "segments"),
    [
        ("[CLS] $A [SEP] [SEP] $B [SEP]", [0, 0, 0, 0, 0, 1, 1]),  # RoBERTa
        ("$A [SEP] $B [SEP] [CLS]", [0, 0, 0, 1, 1, 1]),  # XLNet
    ],
)
def test_special_tokens_belong_to_the_sentence_that_they_end(pairing, pattern, segments):
    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(pairing.tokenizer)
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(pair=pattern, special_tokens=special)
    seen = sentence_attention(load_model(pairing.module, tokenizer=tokenizer), "the cat", pair="dog")
    assert [token.segment for token in seen.sentence.tokens["encoder"]] == segments
