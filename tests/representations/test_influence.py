"""Influence by frequency rank, against runs of whole models, one sentence and one block at a time."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, RankStrata, Reader, measure
from infoflow.foundation import UserError
from infoflow.models import tap
from infoflow.representations import InfluenceByFrequency, pwcca
from infoflow.representations._influence_by_frequency import draw_targets

EDGES = (1, 4, 8, 40)
OBJECTIVES = ("masked-lm", "causal-lm", "translation")
SIZE = 70  # rows for each bin: more than twice the width of 32

pytestmark = pytest.mark.filterwarnings("ignore:PWCCA of .* tokens in 3. dimensions")  # few rows keep this fast


@pytest.fixture(scope="module")
def readers(parallel_corpus, matched_models):
    def make(objective, corpus=parallel_corpus, seed=0, model=None):
        model = model or matched_models[objective]
        return Reader(model, corpus, max_length=64, seed=seed, decoder=objective == "translation")

    return make


@pytest.fixture(scope="module")
def frames(readers):
    measured = InfluenceByFrequency(per_bin=SIZE, edges=EDGES)
    return {name: measured.run(readers(name), PassOptions(tokens_per_batch=200)) for name in OBJECTIVES}


def without(call, token):
    """The call in which the token's column is cut out, not masked."""
    rest = [column for column in range(call.key.shape[2]) if column != token]
    mask = None if call.mask is None else call.mask[..., rest]
    return call.edited(key=call.key[:, :, rest], value=call.value[:, :, rest], mask=mask)


def outputs_of(model, stack, tokens, block=None, removed=None):
    """All blocks' outputs in a run of the whole model on one sentence, a token removed in one block alone."""

    def edit(call):
        here = (call.stack, call.kind, call.layer) == (stack, "self", block)
        return without(call, removed) if here else None

    ids = torch.tensor(tokens)[None]
    with torch.no_grad(), tap(model, hidden=True, on_attention=edit) as seen:
        if len(model.anatomy.stacks) > 1:
            model.module.get_encoder()(ids)
        else:
            model.module(ids)
    return [states[0].numpy() for states in seen.hidden[stack][1:]]


def slow_influence(reader, stack, targets, role, pool, size):
    """The two views of every block, built sentence by sentence and row by row."""
    views = [([], []) for _ in reader.model.anatomy.stack(stack).layers]
    for row, token in zip(targets.row, getattr(targets, role), strict=True):
        sentence = reader.sentence_rows(int(row), "clean", 0)[stack]
        kept = outputs_of(reader.model, stack, sentence.tokens)
        for block, (with_token, without_token) in enumerate(views):
            removed = outputs_of(reader.model, stack, sentence.tokens, block, int(token))[block]
            for position in np.flatnonzero(~sentence.special):
                if position > token or (position != token and pool == "others"):
                    with_token.append(kept[block][position])
                    without_token.append(removed[position])
    return [[np.array(view[:size]) for view in pair] for pair in views]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_agrees_with_whole_models_sentence_by_sentence(frames, readers, objective):
    reader, frame = readers(objective), frames[objective]
    stack = reader.source_stack
    pools = ("others", "after") if stack == "decoder" else ("others",)
    assert set(frame["pool"]) == set(pools)
    drawn = draw_targets(reader, stack, RankStrata(edges=EDGES, per_bin=SIZE), pools)
    assert set(frame["bin"]) == set(drawn) == {0, 1, 2}
    index = 2 if objective == "causal-lm" else 0
    rows = frame[frame["bin"] == index].set_index(["pool", "block"])
    for pool in pools:
        expected, baseline = (
            slow_influence(reader, stack, drawn[index], role, pool, int(frame["count"].iloc[0]))
            for role in ("target", "control")
        )
        for block in range(2):
            row = rows.loc[(pool, block)]
            assert row["value"] == pytest.approx(1 - pwcca(*expected[block]), rel=1e-3)
            assert row["baseline"] == pytest.approx(1 - pwcca(*baseline[block]), rel=1e-3)
            assert row["value"] > 1e-6
            assert row["low"] <= row["value"] <= row["high"]


def test_tables_conform_and_all_bins_are_equally_large(frames):
    for frame in frames.values():
        frame = InfluenceByFrequency.table.conform(frame)
        assert frame["count"].nunique() == 1
        assert frame["replicates"].map(len).eq(200).all()
        keys = ["stack", "block", "bin", "pool"]
        assert not frame.duplicated(keys).any()
        assert set(frame["block"]) == {0, 1}


def test_tokens_before_the_target_dilute_a_causal_stack(frames):
    by_pool = frames["causal-lm"].pivot_table(index="block", columns="pool", values="value")  # means over the bins
    assert (by_pool["after"] > by_pool["others"]).all()


@pytest.mark.parametrize("objective", ["masked-lm", "causal-lm"])
def test_the_batch_size_does_not_matter(frames, readers, objective):
    measured = InfluenceByFrequency(per_bin=SIZE, edges=EDGES)
    tight = {"tokens_per_batch": 1} if objective == "masked-lm" else {"attention_bytes": 1}
    frame = measured.run(readers(objective), PassOptions(**tight))
    np.testing.assert_allclose(frame["value"], frames[objective]["value"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(frame["baseline"], frames[objective]["baseline"], rtol=1e-4, atol=1e-5)


def test_the_decoder_of_an_encoder_decoder_on_request(frames, readers):
    frame = InfluenceByFrequency(per_bin=SIZE, edges=EDGES, decoder=True).run(readers("translation"), PassOptions())
    encoder = frame[frame["stack"] == "encoder"]
    np.testing.assert_allclose(encoder["value"], frames["translation"]["value"], rtol=1e-4)
    decoder = frame[frame["stack"] == "decoder"]
    assert set(decoder["pool"]) == {"others", "after"}
    assert (decoder["value"] > 0).all()


def test_one_target_per_sentence_from_its_bin_and_one_control(readers, parallel_corpus):
    reader = readers("masked-lm")
    drawn = draw_targets(reader, "encoder", RankStrata(edges=EDGES, per_bin=10**6), ("others",))
    ranks, controls = reader.ranks["encoder"], {}
    for index, targets in drawn.items():
        assert len(set(targets.row)) == len(targets)
        for row, target, control, others, after in zip(
            targets.row, targets.target, targets.control, targets.others, targets.after_target, strict=True
        ):
            sentence = reader.sentence_rows(int(row), "clean", 0)["encoder"]
            valid = np.flatnonzero(~sentence.special)
            assert EDGES[index] <= ranks[sentence.tokens[target]] < EDGES[index + 1]
            assert control in valid
            assert controls.setdefault(row, control) == control
            assert others == len(valid) - 1 > 0
            assert after == (valid > target).sum()
    rows = range(len(parallel_corpus))
    single = [r for r in rows if (~reader.sentence_rows(r, "clean", 0)["encoder"].special).sum() == 1]
    assert single, "the corpus has sentences of one token"
    assert not {row for targets in drawn.values() for row in targets.row} & set(single)


def test_targets_follow_from_the_seed_alone(readers, parallel_corpus):
    strata = RankStrata(edges=EDGES, per_bin=40)
    first = draw_targets(readers("masked-lm"), "encoder", strata, ("others",))
    again = draw_targets(readers("masked-lm"), "encoder", strata, ("others",))
    other = draw_targets(readers("masked-lm", seed=1), "encoder", strata, ("others",))
    np.testing.assert_array_equal(first[0].target, again[0].target)
    assert not np.array_equal(first[0].sentence, other[0].sentence)
    reversed_corpus = parallel_corpus.select(np.arange(len(parallel_corpus))[::-1])
    moved = draw_targets(readers("masked-lm", corpus=reversed_corpus), "encoder", strata, ("others",))
    np.testing.assert_array_equal(first[0].sentence, moved[0].sentence)
    np.testing.assert_array_equal(first[0].target, moved[0].target)


def test_only_sentences_of_one_token_leave_an_empty_table(tmp_path, matched_models):
    path = tmp_path / "single.txt"
    path.write_text("the\ncat\nthe\nred\n")
    tables = measure(
        matched_models["masked-lm"], Corpus.from_text(path), [InfluenceByFrequency(per_bin=10, edges=EDGES)]
    )
    assert tables["influence_by_frequency"].empty


def test_the_byte_budget_bounds_the_rows(readers):
    budget = PassOptions(sample_bytes=66 * 2 * 2 * 4 * 2 * 32)
    frame = InfluenceByFrequency(per_bin=SIZE, edges=EDGES).run(readers("masked-lm"), budget)
    assert set(frame["count"]) == {66}


def test_states_that_are_no_numbers_are_named(parallel_corpus, matched_models):
    own = matched_models["masked-lm"]
    module = copy.deepcopy(own.module)
    with torch.no_grad():
        next(module.get_submodule(own.anatomy.stacks[0].layers[1].block).parameters()).fill_(float("nan"))
    broken = dataclasses.replace(own, module=module)
    with pytest.raises(UserError, match=r"NaN or infinite states in its encoder, layer 2, sentence \d+\."):
        measure(broken, parallel_corpus, [InfluenceByFrequency(per_bin=SIZE, edges=EDGES)])
