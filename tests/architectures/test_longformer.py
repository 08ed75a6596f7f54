"""Longformer as an architecture of plans: BERT's values, a window from the positions, a first token that is global."""

import pytest
import torch
from transformers import LongformerForMaskedLM

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError
from infoflow.models import load_model, tap

VOCABULARY = Vocabulary(size=60, pad=0, start=2, end=3, mask=4, special=(0, 1, 2, 3, 4))
SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)
IDS = torch.tensor([[2, *range(10, 31), 3], [2, *range(30, 43), 3, *[0] * 8]])
MASK = (IDS != 0).long()


def made(seed: int = 0, **shape) -> LongformerForMaskedLM:
    settings = {"width": 16, "layers": 2, "heads": 2, "feedforward": 32, "positions": 64} | shape
    model = build("longformer", "encoder", ModelConfig(**settings), VOCABULARY, seed=seed)
    assert isinstance(model, LongformerForMaskedLM)
    return model.eval()


def test_blocks_embeddings_and_head_begin_as_bert_s_bit_for_bit() -> None:
    ours = dict(made(5).named_parameters())
    bert = dict(build("bert", "encoder", SHAPE, VOCABULARY, seed=5).named_parameters())
    blocks = {name: value for name, value in bert.items() if ".layer." in name}
    assert blocks
    for name, value in blocks.items():
        assert torch.equal(ours["longformer." + name.removeprefix("bert.")], value), name
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(ours[f"longformer.{words}"], bert[f"bert.{words}"])
    positions = "embeddings.position_embeddings.weight"
    assert torch.equal(ours[f"longformer.{positions}"][1:], bert[f"bert.{positions}"])
    assert torch.equal(ours["lm_head.dense.weight"], bert["cls.predictions.transform.dense.weight"])


def test_projections_of_global_tokens_are_copies_of_the_others() -> None:
    for layer in made(3).longformer.encoder.layer:
        attention = layer.attention.self
        for part in ("query", "key", "value"):
            own, all_tokens = getattr(attention, f"{part}_global"), getattr(attention, part)
            assert own.weight is not all_tokens.weight
            assert torch.equal(own.weight, all_tokens.weight)
            assert torch.equal(own.bias, all_tokens.bias)


@pytest.mark.parametrize(("positions", "window"), [(4, 4), (31, 4), (64, 8), (128, 16), (4096, 512)])
def test_the_window_is_an_eighth_of_the_positions(positions, window) -> None:
    assert made(positions=positions).config.attention_window == [window] * 2


def test_a_window_beyond_the_positions_is_refused() -> None:
    with pytest.raises(UserError, match="window of 4 tokens for 3 positions"):
        made(positions=3)


def test_logits_are_those_of_plain_transformers_with_its_first_token_global(tmp_path) -> None:
    model = made(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "_global" in name or "norm" not in name.lower():
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path)
    loaded, plain = load_model(tmp_path), LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    first = torch.zeros_like(IDS)
    first[:, 0] = 1
    with torch.no_grad():
        expected = plain(IDS, attention_mask=MASK, global_attention_mask=first).logits
        local = plain(IDS, attention_mask=MASK).logits
        with tap(loaded, attention=True):
            tapped = loaded.module(IDS, attention_mask=MASK).logits
        untapped = model(IDS, attention_mask=MASK).logits
    real = MASK.bool()
    torch.testing.assert_close(tapped[real], expected[real], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(untapped[real], expected[real], rtol=1e-5, atol=1e-5)
    assert (local[real] - expected[real]).abs().max() > 1e-3
    assert loaded.max_tokens == 64


def test_the_band_is_a_brute_force_mask() -> None:
    """Where the global projections are copies, BERT's attention with the mask written pair by pair gives the states."""
    model, bert = made(2), build("bert", "encoder", SHAPE, VOCABULARY, seed=2).eval()
    allowed = torch.zeros(2, 1, IDS.shape[1], IDS.shape[1], dtype=torch.bool)
    for row, length in enumerate(MASK.sum(1).tolist()):
        for query in range(IDS.shape[1]):
            for key in range(length):
                allowed[row, 0, query, key] = abs(query - key) <= 4 or query == 0 or key == 0
    with torch.no_grad():
        found = model.longformer(IDS, attention_mask=MASK).last_hidden_state
        expected = bert.bert(IDS, attention_mask=allowed).last_hidden_state
        everything = bert.bert(IDS, attention_mask=MASK).last_hidden_state
    real = MASK.bool()
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-5)
    assert (everything[real] - expected[real]).abs().max() > 1e-3


def test_training_reaches_every_projection() -> None:
    model = made(4).train()
    model(IDS, attention_mask=MASK, labels=IDS).loss.backward()
    silent = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]
    assert all(name.endswith(("key.bias", "key_global.bias")) for name in silent), silent  # softmax cancels these


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ({"attention": "full"}, lambda i, j: True),
        ({"attention": "window"}, lambda i, j: abs(i - j) <= 4),
        ({"attention": "window", "attention_window": 6}, lambda i, j: abs(i - j) <= 3),
        ({"attention": "dilated"}, lambda i, j: abs(i - j) <= 8 and (i - j) % 2 == 0),
        (
            {"attention": "dilated", "attention_window": 4, "attention_dilation": 3},
            lambda i, j: abs(i - j) <= 6 and (i - j) % 3 == 0,
        ),
        ({"attention": "global+window"}, lambda i, j: abs(i - j) <= 4 or i == 0 or j == 0),
    ],
)
def test_every_pattern_equals_masked_softmax_and_survives_its_folder(shape, seen, tmp_path) -> None:
    model = made(2, **shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    with torch.no_grad(), tap(loaded, attention=True) as tapped:
        again = loaded.module(IDS, attention_mask=MASK).logits
        weights = torch.stack(list(tapped.attention["encoder", "self"]))[:, 0]
    with torch.no_grad():
        logits = model(IDS, attention_mask=MASK).logits
    torch.testing.assert_close(again[MASK.bool()], logits[MASK.bool()], rtol=1e-5, atol=1e-5)
    length = IDS.shape[1]
    expected = torch.tensor([[seen(i, j) for j in range(length)] for i in range(length)])
    assert torch.equal((weights > 0).any(dim=(0, 1)), expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_full_attention_is_bert(tmp_path) -> None:
    ours, bert = made(4, attention="full"), build("bert", "encoder", SHAPE, VOCABULARY, seed=4).eval()
    with torch.no_grad():
        states = ours.longformer(IDS, attention_mask=MASK).last_hidden_state
        theirs = bert.base_model(IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(states[MASK.bool()], theirs[MASK.bool()], rtol=1e-4, atol=1e-5)


def test_an_odd_window_is_refused() -> None:
    with pytest.raises(UserError, match=r"must be even.*Got 5\. Try 6"):
        made(attention="window", attention_window=5)
