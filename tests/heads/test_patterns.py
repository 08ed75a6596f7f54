"""Heads on repeated random tokens, against loops and against heads whose pattern is known."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.flow import PassOptions, measure
from infoflow.heads import PatternScores, copying_scores, logit_directions, make_repeats, output_weight, pattern_mask
from infoflow.models import readout, tap

TOKENS = torch.tensor([[-1, 5, 7, 5, 9, 5, 7, -1], [3, 3, 4, 3, 4, 4, 3, 4]])


def mask_by_definition(tokens, pattern):
    mask = torch.zeros(len(tokens), tokens.shape[1], tokens.shape[1], dtype=torch.bool)
    for b, row in enumerate(tokens.tolist()):
        for i, x in enumerate(row):
            for j in range(i + 1):
                if x == -1 or row[j] == -1:
                    continue
                mask[b, i, j] = {
                    "previous": j == i - 1,
                    "duplicate": j < i and row[j] == x,
                    "induction": j >= 1 and j - 1 < i and row[j - 1] == x,
                }[pattern]
    return mask


@pytest.mark.parametrize("pattern", ["previous", "duplicate", "induction"])
def test_masks_agree_with_definition(pattern):
    assert torch.equal(pattern_mask(TOKENS, pattern), mask_by_definition(TOKENS, pattern))


def test_scores_agree_with_definition():
    attention = torch.softmax(torch.randn(1, 2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).double(), 4)
    frame = PatternScores().of(attention, TOKENS != -1, TOKENS)
    assert len(frame) == 3 * 3 * 3
    for row in frame.itertuples():
        mask, top, bottom = pattern_mask(TOKENS, row.pattern), 0.0, 0.0
        for b in range(2):
            hit = whole = away = 0.0
            rows = [i for i in range(8) if TOKENS[b, i] != -1]
            counted = [i for i in rows if row.score != "valid rows" or mask[b, i].any()]
            for i in counted:
                for j in range(8):
                    a, m = float(attention[0, b, row.head, i, j]), float(mask[b, i, j])
                    hit, whole, away = hit + a * m, whole + a, away + abs(a - m)
            absolute = row.score == "absolute"
            top, bottom = top + (1 - away / len(rows) if absolute else hit), bottom + (1 if absolute else whole)
        assert row.value == pytest.approx(top / bottom)


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(12)


@pytest.fixture(scope="module", params=["bert", "llama"])
def model(request, corpus):
    return getattr(tiny, request.param)(corpus)


def run(model, corpus, settings):
    reader = tiny.reader_of(model, corpus, decoder=len(model.anatomy.stacks) > 1)
    return settings.table.conform(settings.run(reader, PassOptions()))


def perfect(pattern):
    """An attention listener that makes every head attend to the last target of a pattern, else to itself."""

    def edit(call):
        ids = TEXT["ids"]
        mask = pattern_mask(ids, pattern)
        num = mask.shape[1]
        if call.weights.shape[3] != num:  # a look at the model with a text of another length
            return None
        last = torch.where(mask, torch.arange(num), -1).amax(2)
        target = torch.where(last >= 0, last, torch.arange(num))
        weights = torch.nn.functional.one_hot(target, num).to(call.weights.dtype)
        return call.edited(weights=weights.unsqueeze(1).expand_as(call.weights))

    return edit


TEXT = {}


@pytest.mark.parametrize("pattern", ["previous", "duplicate", "induction"])
def test_known_heads_are_recognised(corpus, pattern):
    model = tiny.llama(corpus)
    settings = PatternScores(length=6, repeats=3, sequences=4)
    text = make_repeats(tiny.reader_of(model, corpus), "decoder", 4, 6, 3, 0)
    TEXT["ids"] = text.ids.masked_fill(~text.content, -1)
    with tap(model, on_attention=perfect(pattern)):
        frame = run(model, corpus, settings)
    table = frame[frame["layer"] == 0].groupby(["pattern", "score"])["value"].first()
    assert table[pattern, "valid rows"] == pytest.approx(1)
    assert table[pattern, "share"] < 1
    for other in {"previous", "duplicate", "induction"} - {pattern}:
        assert table[other, "valid rows"] < 0.5
    expected = 1.0 if pattern == "induction" else 0.0
    assert table["prefix", "all"] == pytest.approx(expected)
    assert table["prefix", "last"] == pytest.approx(expected)


def test_values_chance_and_rows(model, corpus):
    frame = run(model, corpus, PatternScores(length=8, repeats=3, sequences=5))
    heads = sum(attention.num_heads for attention in model.anatomy.attentions())
    assert len(frame) == heads * (3 * 3 + 2 + 2)
    assert not frame["value"].isna().any()
    assert not frame["baseline"].isna().any()
    shares = frame[frame["score"].isin(["share", "valid rows", "all", "last"])]
    assert shares["value"].between(0, 1).all()
    assert (frame["low"] <= frame["value"] + 1e-9).all()
    every, last = (frame.loc[frame["score"] == name, "value"].to_numpy() for name in ("all", "last"))
    assert (last <= every + 1e-9).all()


def test_chance_is_uniform_attention(corpus):
    model = tiny.llama(corpus)

    def flat(call):
        allowed = call.mask > -1 if call.mask is not None else torch.ones_like(call.weights[:1, :1]).tril() > 0
        allowed = allowed.expand_as(call.weights)
        return call.edited(weights=allowed / allowed.sum(-1, keepdim=True))

    with tap(model, on_attention=flat):
        frame = run(model, corpus, PatternScores(length=6, repeats=3, sequences=3))
    frame = frame[frame["pattern"] != "copying"]
    np.testing.assert_allclose(frame["value"], frame["baseline"], atol=1e-6)


def test_exclusions_leave_the_denominators(corpus):
    model = tiny.bert(corpus)
    kept = run(model, corpus, PatternScores(length=6, repeats=3, sequences=3))
    excluded = run(model, corpus, PatternScores(length=6, repeats=3, sequences=3, exclude_special=True))
    shares = kept["score"].eq("share")
    assert (excluded["value"][shares] >= kept["value"][shares]).all()
    assert (excluded["value"][shares] > kept["value"][shares]).any()


def test_copying_is_the_effect_on_the_logit(model, corpus):
    """A small step along v W_O at the last block's output moves the token's logit by the score."""
    reader = tiny.reader_of(model, corpus)
    text = make_repeats(reader, reader.source_stack, 2, 5, 2, 0)
    values = {}
    with torch.no_grad(), tap(model, hidden=True, on_attention=lambda c: values.update({c.layer: c.value})) as seen:
        model.module(input_ids=text.ids)
    read = readout(model)
    states = seen.hidden[reader.source_stack][-1][:, text.first]
    tokens = text.ids[:, text.first]
    directions = logit_directions(read, states.flatten(0, 1), tokens.flatten()).unflatten(0, tokens.shape)
    attention = model.anatomy.stacks[0].layers[1].attentions["self"]
    output = output_weight(model, attention)
    scores = copying_scores(values[1][:, :, text.first], output, directions)
    for b, h, p in ((0, 0, 0), (1, 1, 3), (1, 2, 4)):
        effect = values[1][b, h, text.first[p]] @ output[h]
        step = 1e-3 / float(effect.norm())

        def score(state, token=tokens[b, p]):
            logits = read(state[None])[0].double()
            return float(logits[token] - logits.mean())

        with torch.no_grad():
            slope = (score(states[b, p] + step * effect) - score(states[b, p] - step * effect)) / (2 * step)
        assert slope == pytest.approx(float(scores[b, h, p]), rel=0.05, abs=0.02)


def test_an_encoder_decoder_reads_a_text_in_each_stack(matched_models, parallel_corpus):
    frame = run(matched_models["translation"], parallel_corpus, PatternScores(length=5, repeats=2, sequences=2))
    assert set(frame["stack"]) == {"encoder", "decoder"}
    assert set(frame.loc[frame["pattern"] == "copying", "stack"]) == {"decoder"}


def test_short_models_get_shorter_repeats_or_none(corpus):
    model = tiny.bert(corpus)
    reader = tiny.reader_of(model, corpus)
    object.__setattr__(model, "__dict__", {**vars(model), "max_tokens": 20})
    text = make_repeats(reader, "encoder", 2, 25, 4, 0)
    assert (text.length, text.ids.shape[1]) == (4, 18)
    object.__setattr__(model, "__dict__", {**vars(model), "max_tokens": 9})
    assert make_repeats(reader, "encoder", 2, 25, 4, 0) is None
    assert PatternScores().run(reader, PassOptions()).empty


def test_it_runs_in_a_pass_and_batches_change_nothing(corpus):
    model = tiny.bert(corpus)
    settings = PatternScores(length=6, repeats=3, sequences=6)
    whole = measure(model, corpus, [settings])["head_patterns"]
    small = measure(model, corpus, [settings], PassOptions(tokens_per_batch=40))["head_patterns"]
    np.testing.assert_allclose(whole["value"], small["value"], atol=1e-5)
