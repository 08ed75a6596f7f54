"""What views of one sentence add to its attention: what its layers predict, and heads that are named."""

import json

import numpy as np
import pytest
import torch
import transformers
from support.chat_tokenizers import CHATML, chat_tokenizer

from infoflow.foundation import UserError
from infoflow.heads import (
    AttentionOfKind,
    LayerAttention,
    ReadSentence,
    ReadToken,
    SentenceAttention,
    quantise,
    read_tokens,
    sentence_attention,
    sentence_lens,
    telling_heads,
)
from infoflow.models import load_model, readout, tap

SENTENCE, TRANSLATION = "the old cat sees the dog", "le vieux chat voit le chien"


@pytest.mark.parametrize("name", ["causal-lm", "masked-lm", "translation"])
def test_the_lens_names_the_likeliest_tokens_of_each_state(matched_models, name):
    """Against the states of the blocks themselves, one after the other, and the head behind them."""
    model = matched_models[name]
    read = read_tokens(model, SENTENCE, TRANSLATION if name == "translation" else None)
    lens = sentence_lens(model, read)
    assert lens["stack"] == model.anatomy.predicts.name
    ids = [torch.tensor([[token.id for token in tokens]]) for tokens in read.tokens.values()]
    inputs = {"input_ids": ids[0]} | ({"decoder_input_ids": ids[1]} if len(ids) > 1 else {})
    with torch.no_grad(), tap(model, hidden=True) as tapped:
        logits = model.module(**inputs).logits[0]
    head, tokenizer = readout(model), (model.target_tokenizer if len(ids) > 1 else model.tokenizer)
    states = tapped.hidden[lens["stack"]]
    for place, rows in zip(lens["positions"], lens["layers"], strict=True):
        for row, layer in zip(rows, states, strict=True):
            shares = head(layer[0, place : place + 1])[0].detach().softmax(0)
            best = shares.argsort(descending=True)[: len(row)].tolist()
            assert [token for token, _ in row] == best
            assert [share for _, share in row] == pytest.approx(shares[best].tolist(), rel=1e-3)
            name = tokenizer.decode([best[0]]).strip() or tokenizer.convert_ids_to_tokens(best[0])
            assert lens["names"][best[0]] == name
    top = [float(row.max()) for row in logits.softmax(-1)]
    assert [rows[-1][0][1] for rows in lens["layers"]] == pytest.approx(top, rel=1e-3)


def test_a_model_without_output_head_predicts_nothing():
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = load_model(transformers.BertModel(config))
    with pytest.raises(UserError, match="head"):
        sentence_lens(model, read_tokens(model, [5, 6, 7]))


def attending(weights, causal=False):
    """A sentence whose heads have these weights: (head, query, key)."""
    heads, _, size = weights.shape
    zeros = np.zeros((heads, size, 1), dtype=np.float32)
    layer = LayerAttention(
        layer=0,
        weights=quantise(weights),
        value_norms=zeros[:, :, 0],
        query=zeros,
        key=zeros,
        scaling=1.0,
        biased=False,
    )
    kind = AttentionOfKind(stack="encoder", kind="self", causal=causal, layers=(layer,))
    tokens = tuple(ReadToken(id=place, text=f"w{place}", special=False) for place in range(size))
    read = ReadSentence(text="w", translation=None, own_translation=False, tokens={"encoder": tokens})
    return SentenceAttention(model="m", task="masked-lm", sentence=read, kinds=(kind,)), kind


def looking(places, size, weight=0.7):
    """One head whose strongest weights lie at these places."""
    weights = np.full((len(places), size), (1 - weight) / (size - 1), dtype=np.float32)
    weights[np.arange(len(places)), places] = weight
    return weights


def test_heads_with_one_habit_are_named_and_others_are_not():
    size = 10
    previous, third = [0, *range(size - 1)], [3] * size
    mixed = [5, 2, 7, 1, 9, 0, 4, 8, 3, 6]
    weights = np.stack([looking(previous, size), looking(third, size, 0.9), looking(mixed, size, 0.95)])
    found = {one.head: one for one in telling_heads(*attending(weights))}
    assert set(found) == {0, 1}
    assert found[0].description == "looks at the token before (9 of 9 tokens)"
    assert found[1].description == "looks at “w3” (10 of 10 tokens)"
    assert found[1].confidence == pytest.approx(0.9, abs=0.01)
    assert [one.head for one in telling_heads(*attending(weights))] == [1, 0]


def test_a_habit_of_too_few_tokens_is_none():
    size = 10
    almost = [0, *range(6), 9, 1, 2]  # six of nine look one back
    assert telling_heads(*attending(looking(almost, size)[None])) == ()
    assert telling_heads(*attending(looking([0, 0, 1], 3)[None])) == ()


def test_the_first_token_of_a_causal_model_does_not_count():
    size = 6
    weights = np.tril(np.full((size, size), 0.01, dtype=np.float32))
    weights[0, 0] = 1.0
    for query in range(1, size):
        weights[query, 0] = 0.9
    (one,) = telling_heads(*attending(weights[None], causal=True))
    assert one.description == "looks at “w0” (5 of 5 tokens)"


def test_many_heads_with_one_habit_leave_room_for_others():
    size = 10
    first = [looking([0] * size, size, 0.9 - head / 100) for head in range(9)]
    weights = np.stack([*first, looking([0, *range(size - 1)], size, 0.5)])
    assert [one.head for one in telling_heads(*attending(weights))] == [0, 1, 2, 9]


def test_a_message_is_read_through_the_chat_template(tmp_path):
    tokenizer = chat_tokenizer(CHATML)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = load_model(transformers.LlamaForCausalLM(config), tokenizer=tokenizer)
    messages = [{"role": "user", "content": "What is Paris?"}, {"role": "assistant", "content": "The capital."}]
    (tmp_path / "one.json").write_text(json.dumps({"messages": messages}))
    for said, turns in (("What is Paris?", messages[:1]), (str(tmp_path / "one.json"), messages)):
        (read,) = sentence_attention(model, said, chat=True).sentence.tokens.values()
        assert [token.id for token in read] == tokenizer.apply_chat_template(turns)["input_ids"]
        control = {tokenizer.convert_tokens_to_ids(name) for name in ("<|im_start|>", "<|im_end|>")}
        assert {token.id for token in read if token.special} == control
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="has no chat template"):
        sentence_attention(model, "What is Paris?", chat=True)
