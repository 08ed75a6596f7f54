"""The streaming measures of heads."""

import io
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from infoflow.flow import Activations, Stream
from infoflow.foundation import block_of, replicate_weights
from infoflow.heads import Confidence, Entropy, PositionalScores, attention_entropy, confidence, offset_scores
from infoflow.models import Anatomy, Model, Stack

LAYERS, HEADS = 2, 3
MEASURES = [Confidence, Entropy, PositionalScores]


def make_model(causal):
    anatomy = Mock(spec=Anatomy)
    anatomy.stack = lambda name: Stack(name=name, causal=causal or name == "decoder", width=8, layers=())
    return Mock(spec=Model, anatomy=anatomy)


def make_stream(lengths, left, total=None):
    """Sentences with a special token first and last, padded on one side."""
    total = total or max(lengths)
    position = torch.full((len(lengths), total), -1)
    for row, length in enumerate(lengths):
        start = total - length if left else 0
        position[row, start : start + length] = torch.arange(length)
    last = torch.tensor(lengths).unsqueeze(1) - 1
    nothing = torch.zeros_like(position)
    return Stream(
        input_ids=nothing,
        real=position >= 0,
        valid=(position > 0) & (position < last),
        counted=position >= 0,
        labels=nothing,
        position=position,
        words=nothing,
    )


def weights_of(sentence, length_q, length_k, causal, seed=0):
    """(L, H, q, k) attention of one sentence, a function of its id alone."""
    generator = torch.Generator().manual_seed(1000 * seed + int(sentence))
    scores = 2 * torch.randn(LAYERS, HEADS, length_q, length_k, generator=generator, dtype=torch.float64)
    if causal:
        scores = scores.masked_fill(torch.ones(length_q, length_k).triu(1).bool(), -torch.inf)
    return torch.softmax(scores, dim=-1)


def place(parts, queries, keys):
    """Put each sentence's attention at its real tokens; padding rows hold NaN, padding columns 0."""
    batch = torch.full((LAYERS, len(parts), HEADS, *queries.real.shape[1:], keys.real.shape[1]), torch.nan).double()
    for row, part in enumerate(parts):
        block = torch.zeros(LAYERS, HEADS, part.shape[2], keys.real.shape[1], dtype=torch.float64)
        block[..., keys.real[row]] = part
        batch[:, row, :, queries.real[row]] = block
    return list(batch)


def self_attention(ids, lengths, left=False, causal=False, total=None):
    stream = make_stream(lengths, left, total)
    parts = [weights_of(i, length, length, causal) for i, length in zip(ids, lengths, strict=True)]
    return Activations(
        model=make_model(causal),
        regime="clean",
        sentence_ids=np.array(ids),
        blocks=torch.from_numpy(block_of(np.array(ids))),
        streams={"encoder": stream},
        attention={("encoder", "self"): place(parts, stream, stream)},
    )


def cross_attention(ids, source, target, left_source, left_target):
    encoder, decoder = make_stream(source, left_source), make_stream(target, left_target)
    parts = [weights_of(i, t, s, False) for i, s, t in zip(ids, source, target, strict=True)]
    return Activations(
        model=make_model(False),
        regime="clean",
        sentence_ids=np.array(ids),
        blocks=torch.from_numpy(block_of(np.array(ids))),
        streams={"encoder": encoder, "decoder": decoder},
        attention={("decoder", "cross"): place(parts, decoder, encoder)},
    )


def run(measure, *batches):
    for batch in batches:
        measure.update(batch)
    return measure.table.conform(measure.result())


IDS, LENGTHS = list(range(100, 140)), [3 + i % 7 for i in range(40)]


@pytest.mark.parametrize(
    ("measure", "function"), [(Confidence, confidence), (Entropy, attention_entropy), (PositionalScores, offset_scores)]
)
def test_agree_with_the_pure_functions(measure, function):
    batch = self_attention(IDS, LENGTHS)
    frame = run(measure(), batch)
    expected = function(torch.stack(batch.attention["encoder", "self"]), batch.streams["encoder"].valid)
    np.testing.assert_allclose(frame["value"], expected.flatten(), rtol=1e-6)
    assert frame["layer"].nunique() == LAYERS
    assert frame["head"].nunique() == HEADS
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", MEASURES)
def test_batches_of_one_and_padded_batches_agree(measure, causal):
    alone = run(measure(), *(self_attention([i], [n], causal=causal) for i, n in zip(IDS, LENGTHS, strict=True)))
    for left in (False, True):
        together = run(measure(), self_attention(IDS, LENGTHS, left=left, causal=causal, total=14))
        for column in ("value", "low", "high", "baseline", "count"):
            np.testing.assert_allclose(together[column], alone[column], rtol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_cross_attention_pads_each_side_on_its_own(measure):
    source, target = [4 + i % 5 for i in range(40)], [3 + i % 6 for i in range(40)]
    alone = run(
        measure(), *(cross_attention([i], [s], [t], False, False) for i, s, t in zip(IDS, source, target, strict=True))
    )
    together = run(measure(), cross_attention(IDS, source, target, True, False))
    np.testing.assert_allclose(together["value"], alone["value"], rtol=1e-9)
    np.testing.assert_allclose(together["baseline"], alone["baseline"], rtol=1e-9)
    assert together["kind"].eq("cross").all()


def test_offsets_in_cross_attention_compare_places_in_source_and_target():
    """A head that always looks at the source token of the query's own place has a share of 1 at offset 0."""
    batch = cross_attention([1, 2], [9, 7], [6, 5], left_source=True, left_target=False)
    queries, keys = batch.streams["decoder"].position, batch.streams["encoder"].position
    diagonal = (queries[:, :, None] == keys[:, None, :]).double()[:, None].expand(-1, HEADS, -1, -1)
    batch.attention["decoder", "cross"][:] = [diagonal] * LAYERS
    frame = run(PositionalScores(offsets=(0, 1)), batch)
    assert frame.loc[frame["offset"] == 0, "value"].eq(1).all()
    assert frame.loc[frame["offset"] == 1, "value"].eq(0).all()


def test_later_tokens_are_no_keys_in_causal_attention():
    frame = run(PositionalScores(offsets=(-1, 0, 1)), self_attention(IDS, LENGTHS, causal=True))
    later = frame[frame["offset"] == 1]
    assert later["value"].isna().all()
    assert later["count"].eq(0).all()
    assert frame.loc[frame["offset"] == -1, "value"].between(0, 1).all()
    # Query i, from 0 among the valid tokens, has i + 1 keys.
    num_valid = np.array(LENGTHS) - 2
    expected = sum(1 / (i + 1) for n in num_valid for i in range(n)) / num_valid.sum()
    np.testing.assert_allclose(frame.loc[frame["offset"] == 0, "baseline"], expected)


def test_the_positional_baseline_is_a_random_key():
    """Heads without preferences hit each offset as often as a random key does."""
    ids, lengths = list(range(2000)), [8] * 2000
    frame = run(PositionalScores(), self_attention(ids, lengths))
    np.testing.assert_allclose(frame["baseline"], 1 / 6)
    np.testing.assert_allclose(frame["value"], 1 / 6, atol=0.015)


def test_equal_largest_weights_share_the_query():
    """Three keys with the largest weight count a third each, whatever their order."""
    weights = torch.tensor([0.3, 0.1, 0.3, 0.3]).expand(1, 1, 1, 4, 4)
    scores = offset_scores(weights, torch.ones(1, 4, dtype=torch.bool), offsets=(-2, -1, 0, 1, 2))
    np.testing.assert_allclose(scores[0, 0], [1 / 6, 2 / 9, 1 / 4, 2 / 9, 1 / 3], atol=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
def test_merging_and_saving_lose_nothing(measure):
    whole, first, second = measure(), measure(), measure()
    whole.update(self_attention(IDS, LENGTHS))
    first.update(self_attention(IDS[:15], LENGTHS[:15]))
    second.update(self_attention(IDS[15:], LENGTHS[15:]))
    file = io.BytesIO()
    np.savez(file, **second.state_dict())
    file.seek(0)
    restored = measure()
    restored.load_state_dict(dict(np.load(file)))
    first.merge(restored)
    first.merge(measure())  # a shard that saw nothing
    for name, array in whole.state_dict().items():
        np.testing.assert_allclose(first.state_dict()[name], array, rtol=1e-12)
    assert measure().result().empty


@pytest.mark.parametrize("measure", [Confidence, Entropy])
def test_replicates_repeat_sentences_as_often_as_their_block_is_drawn(measure):
    singles = []
    for i, n in zip(IDS, LENGTHS, strict=True):
        frame = run(measure(), self_attention([i], [n]))
        singles.append((frame["value"].to_numpy() * (n - 2), n - 2, int(block_of(np.array([i]))[0])))
    together = run(measure(), self_attention(IDS, LENGTHS))
    for replicate, weights in enumerate(replicate_weights()[:5]):
        total = sum(weights[block] * value for value, _, block in singles)
        count = sum(weights[block] * number for _, number, block in singles)
        np.testing.assert_allclose([r[replicate] for r in together["replicates"]], total / count, rtol=1e-9)


def test_half_precision_attention_is_summed_in_double():
    batch = self_attention(IDS, LENGTHS)
    exact = run(Confidence(), batch)
    batch.attention["encoder", "self"][:] = [w.bfloat16() for w in batch.attention["encoder", "self"]]
    np.testing.assert_allclose(run(Confidence(), batch)["value"], exact["value"], atol=2e-3)
