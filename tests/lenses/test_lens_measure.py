"""The measure of lenses, against every sentence run alone and every number summed in a loop."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, PassOptions, Reader, measure
from infoflow.foundation import UserError, hash64, hash64_array, make_display, stream, use_display
from infoflow.lenses import Lens
from infoflow.models import load_model
from infoflow.objectives import Example, MaskedLM, Vocabulary
from infoflow.subjects.lenses.measures._lens_states import LensReader

SETTINGS = {"steps": 20, "tokens": 16, "evaluated": 60, "held_out": 0.4}
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
OPTIONS = PassOptions(seed=3)


@pytest.fixture(scope="module")
def tables(matched_models, parallel_corpus):
    """The table of each objective, and of a masked LM at all positions."""
    found = {name: table(matched_models[name], parallel_corpus) for name in OBJECTIVES}
    return found | {"all": table(matched_models["masked-lm"], parallel_corpus, positions="all")}


def table(model, corpus, options=OPTIONS, **settings):
    return measure(model, corpus, [Lens(**(SETTINGS | settings))], options)["lens"]


def values(frame, lens, metric):
    return frame[(frame["lens"] == lens) & (frame["metric"] == metric)].set_index("layer")["value"]


def reader_of(model, corpus):
    return Reader(model, corpus, max_length=512, seed=OPTIONS.seed, decoder=model.task == "seq2seq")


def held_out_rows(reader, wanted, share):
    """Rows of the evaluation part in hash order, until enough positions are expected."""
    corpus = reader.corpus
    test = corpus.split(seed=hash64("lens-part", OPTIONS.seed), validation=0.0, test=SETTINGS["held_out"]).test
    order = np.argsort(hash64_array(("lens-order", OPTIONS.seed), corpus.content_ids))
    rows, expected = [], 0.0
    for row in order[np.isin(corpus.ids[order], test.ids)]:
        if expected < wanted:
            rows.append(int(row))
            expected += share * reader.longest(np.array([row]))
    return rows


def read_alone(model, corpus, row, positions):
    """Logits of every layer, and labels, at the positions of one sentence: no batch, no padding."""
    tokenizer, target = model.tokenizer, model.target_tokenizer
    ids = np.array(tokenizer(corpus[row].text)["input_ids"])
    labels = np.full(len(ids), NO_LABEL)
    if model.task == "masked-lm" and positions == "predicted":
        noise = stream("lens-noise", OPTIONS.seed, 0, int(corpus.content_ids[row]))
        corrupted = MaskedLM().corrupt(Example(texts=(ids,)), noise, Vocabulary.from_tokenizer(tokenizer))
        ids, labels = corrupted.input_ids, corrupted.labels
    arguments = {"input_ids": torch.from_numpy(ids)[None]}
    if model.task == "causal-lm":
        labels[:-1] = ids[1:]
    special = np.isin(ids, tokenizer.all_special_ids)
    if model.task == "seq2seq":
        written = target(corpus[row].translation)["input_ids"]
        arguments["decoder_input_ids"], labels = torch.tensor([written[:-1]]), np.array(written[1:])
    chosen = labels != NO_LABEL if positions == "predicted" else ~special
    with torch.no_grad():
        output = model.module(**arguments, output_hidden_states=True)
        if model.task == "seq2seq":
            logits = [model.module.decoder.cls(state)[0, chosen] for state in output.decoder_hidden_states]
        else:
            logits = [model.module.cls(state)[0, chosen] for state in output.hidden_states]
    return logits, labels[chosen]


def explicit(model, corpus, rows, positions="predicted"):
    """Mean KL, agreement and loss of each layer, one position after the other."""
    sums, count = np.zeros((3, 3)), 0
    for row in rows:
        logits, labels = read_alone(model, corpus, row, positions)
        for index, label in enumerate(labels):
            final = torch.softmax(logits[-1][index].double(), dim=0)
            for layer, each in enumerate(logits):
                shares = torch.softmax(each[index].double(), dim=0)
                sums[layer, 0] += sum(p * np.log(p / q) for p, q in zip(final.tolist(), shares.tolist(), strict=True))
                sums[layer, 1] += final.argmax() == shares.argmax()
                sums[layer, 2] -= np.log(float(shares[label])) if label != NO_LABEL else 0.0
            count += 1
    return sums / count, count


@pytest.mark.parametrize("name", [*OBJECTIVES, "all"])
def test_the_logit_lens_is_the_mean_over_held_out_sentences(tables, matched_models, parallel_corpus, name):
    model = matched_models["masked-lm" if name == "all" else name]
    share = 0.15 if name == "masked-lm" else 1.0
    rows = held_out_rows(reader_of(model, parallel_corpus), SETTINGS["evaluated"], share)
    expected, count = explicit(model, parallel_corpus, rows, "all" if name == "all" else "predicted")
    frame = tables[name]
    assert set(frame["count"]) == {count}
    assert set(frame["stack"]) == {"decoder" if name in ("causal-lm", "translation") else "encoder"}
    metrics = ("kl", "agreement") if name == "all" else ("kl", "agreement", "loss")
    assert tuple(dict.fromkeys(frame["metric"])) == metrics
    for index, metric in enumerate(metrics):
        np.testing.assert_allclose(values(frame, "logit", metric), expected[:, index], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_tuned_lens_is_nearer_on_sentences_it_has_not_seen(tables, name):
    frame = tables[name]
    logit, tuned = values(frame, "logit", "kl"), values(frame, "tuned", "kl")
    assert (tuned.iloc[:-1] < 0.95 * logit.iloc[:-1]).all()
    assert tuned.iloc[-1] == logit.iloc[-1] == 0
    assert (frame[(frame["layer"] == 2) & (frame["metric"] == "agreement")]["value"] == 1).all()
    assert ((frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])).all()
    assert frame["replicates"].map(len).eq(200).all()


def test_the_baseline_is_the_mean_prediction(tables, matched_models, parallel_corpus):
    """Which is learnt from the training part: between the states and the baseline lies what a layer knows."""
    frame = tables["causal-lm"]
    assert frame.groupby("metric")["baseline"].nunique().eq(1).all()
    plain = table(matched_models["causal-lm"], parallel_corpus, tuned=False)
    assert set(plain["lens"]) == {"logit"}
    np.testing.assert_array_equal(values(plain, "logit", "kl"), values(frame, "logit", "kl"))
    model = matched_models["causal-lm"]
    states = LensReader(reader_of(model, parallel_corpus), "predicted", 512)
    training, evaluation = states.halves(0.4)
    finals = {}
    for part, rows in (("training", training), ("evaluation", evaluation)):
        logits = [read_alone(model, parallel_corpus, int(row), "predicted")[0][-1] for row in rows]
        finals[part] = torch.softmax(torch.cat(logits).double(), dim=-1)
    mean = finals["training"].mean(dim=0)
    divergence = (finals["evaluation"] * (finals["evaluation"] / mean).log()).sum(dim=-1).mean()
    whole = table(model, parallel_corpus, tuned=False, evaluated=100_000)
    # The control stops after whole batches of positions, so it may lack the last few.
    assert whole[whole["metric"] == "kl"]["baseline"].iloc[0] == pytest.approx(float(divergence), rel=0.02)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batches_change_nothing_and_runs_repeat(tables, matched_models, parallel_corpus, name):
    again = table(matched_models[name], parallel_corpus)
    assert again["value"].tolist() == tables[name]["value"].tolist()
    smaller = table(matched_models[name], parallel_corpus, PassOptions(seed=3, tokens_per_batch=40))
    np.testing.assert_allclose(smaller["value"], tables[name]["value"], rtol=2e-3, atol=1e-5)
    other = table(matched_models[name], parallel_corpus, PassOptions(seed=4))
    assert not np.allclose(values(other, "logit", "kl")[:2], values(tables[name], "logit", "kl")[:2], rtol=1e-3)


def test_no_sentence_is_trained_on_and_measured(matched_models, tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"the cat sees a {w}\nThe cat  sees a {w}\n" for w in "abcdef"))
    corpus = Corpus.from_text(tmp_path / "text.txt")
    states = LensReader(reader_of(matched_models["causal-lm"], corpus), "predicted", 512)
    training, evaluation = states.halves(0.4)
    assert len(training) + len(evaluation) == 12
    normal = [{" ".join(corpus[int(row)].text.lower().split()) for row in part} for part in (training, evaluation)]
    assert not normal[0] & normal[1]


def test_masked_positions_are_those_of_the_objective(matched_models, parallel_corpus):
    reader = reader_of(matched_models["masked-lm"], parallel_corpus)
    states = LensReader(reader, "predicted", 512)
    rows = np.arange(len(parallel_corpus))
    first, again = [sum(len(part) for part in states.read(rows, draw)) for draw in (0, 1)]
    tokens = int(reader.frequencies["encoder"].sum())
    assert 0.08 * tokens < first < 0.22 * tokens
    other = torch.cat([part.labels for part in states.read(rows, 1)])
    assert len(other) == again
    assert not torch.equal(torch.cat([part.labels for part in states.read(rows, 0)]), other)


def test_shuffled_positions_are_all_positions_in_another_order(matched_models, parallel_corpus):
    states = LensReader(reader_of(matched_models["causal-lm"], parallel_corpus), "predicted", 64)
    rows = np.arange(len(parallel_corpus))
    plain = torch.cat([part.labels for part in states.read(rows)])
    batches = list(states.shuffled(rows, 10, len(plain) // 10 * 10))
    mixed = torch.cat([part.labels for part in batches])
    assert {len(batch) for batch in batches} == {10}
    assert not torch.equal(mixed, plain[: len(mixed)])
    missing = torch.bincount(plain) - torch.bincount(mixed, minlength=int(plain.max()) + 1)
    assert (missing >= 0).all()
    assert int(missing.sum()) == len(plain) % 10
    twice = list(states.shuffled(rows, 10, 2 * len(plain)))
    assert sum(map(len, twice)) >= 2 * len(plain) - 9


def test_what_cannot_be_read_is_skipped_with_a_reason(matched_models, parallel_corpus, tmp_path, display):
    encoder = load_model(matched_models["masked-lm"].module.bert, tokenizer=matched_models["masked-lm"].tokenizer)
    assert Lens().refusal(encoder) == "it has no language-model head, so it predicts nothing"
    assert Lens().refusal(matched_models["masked-lm"]) is None
    (tmp_path / "text.txt").write_text("the cat sees a dog\nthe dog sees a cat\nthe house\n")
    corpus = Corpus.from_text(tmp_path / "text.txt")
    assert table(matched_models["translation"], corpus).empty
    assert any("needs translations" in text for text in display)
    (tmp_path / "one.txt").write_text("the cat sees a dog\n")
    assert table(matched_models["causal-lm"], Corpus.from_text(tmp_path / "one.txt")).empty
    assert any("too few sentences" in text for text in display)


def test_states_that_are_no_numbers_are_named(matched_models, parallel_corpus):
    module = copy.deepcopy(matched_models["causal-lm"].module)
    with torch.no_grad():
        module.get_input_embeddings().weight[-3:] = torch.nan  # of tokens that the corpus holds
    broken = dataclasses.replace(matched_models["causal-lm"], module=module, name="broken")
    reader = reader_of(broken, parallel_corpus)
    with pytest.raises(UserError, match=r"broken has NaN or infinite states in its decoder, layer 0, sentence \d+\."):
        list(LensReader(reader, "all", 1000).read(np.arange(len(parallel_corpus))))


def test_a_small_corpus_is_read_ten_times_at_most(matched_models, parallel_corpus, display):
    model = matched_models["causal-lm"]
    states = LensReader(reader_of(model, parallel_corpus), "predicted", 512)
    training, _ = states.halves(SETTINGS["held_out"])
    positions = sum(len(part) for part in states.read(training))
    assert states.expected(training) == positions + len(training)  # the last token of a sentence predicts nothing
    table(model, parallel_corpus, steps=10_000, tokens=64)
    steps = math.ceil(10 * states.expected(training) / 64)
    assert any(f"for {steps} of 10000 steps" in text for text in display)


@pytest.fixture
def display():
    """What is noted."""
    noted = []
    shown = make_display("silent")
    shown.note = noted.append
    with use_display(shown):
        yield noted
