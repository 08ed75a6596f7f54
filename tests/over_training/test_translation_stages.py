"""Stages of translation: the aligner against loops, each measure against one sentence at a time."""

import math
from collections import Counter

import numpy as np
import pytest
from sacrebleu import corpus_bleu, sentence_chrf
from support.ngram_loops import Loops

from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError, stream
from infoflow.models import translate
from infoflow.over_training import NgramModel, TranslationStages, WordAligner, fuzzy_reordering
from infoflow.subjects.over_training.measures._ngrams import words_of
from infoflow.subjects.over_training.measures._translation_stages import (
    Translated,
    is_degenerate,
    log_scores,
    matched,
    order_rows,
    word_rows,
)


class LoopAligner:
    """IBM model 1 with a prior for the diagonal, term by term."""

    def __init__(self, pairs, iterations=5, tension=4.0, null=0.08):
        self.tension, self.null = tension, null
        self.t = {(e, f): 1.0 for source, target in pairs for f in target for e in [None, *source]}
        for _ in range(iterations):
            counts, totals = Counter(), Counter()
            for source, target in pairs:
                for j, f in enumerate(target):
                    terms = self.terms(source, target, j)
                    for i, e in enumerate([None, *source]):
                        counts[e, f] += terms[i] / sum(terms)
                        totals[e] += terms[i] / sum(terms)
            self.t = {(e, f): count / totals[e] for (e, f), count in counts.items()}

    def terms(self, source, target, j):
        near = [
            math.exp(-self.tension * abs((i + 1) / len(source) - (j + 1) / len(target))) for i in range(len(source))
        ]
        prior = [self.null, *((1 - self.null) * one / sum(near) for one in near)]
        return [p * self.t.get((e, target[j]), 0.0) for p, e in zip(prior, [None, *source], strict=True)]

    def align(self, source, target):
        found = []
        for j in range(len(target)):
            terms = self.terms(source, target, j)
            found.append(terms.index(max(terms)) - 1)
        return found


@pytest.fixture(scope="module")
def pairs(parallel_corpus):
    return [(words_of(one.text), words_of(one.translation)) for one in parallel_corpus]


def test_aligner_agrees_with_loops(pairs):
    fast, slow = WordAligner(pairs), LoopAligner(pairs)
    for source, target in [*pairs, (["cat", "new"], ["chat", "neuf", "le"]), (["new"], ["neuf"])]:
        assert fast.align(source, target).tolist() == slow.align(source, target)
    for word in {word for source, _ in pairs for word in source}:
        best = max(t for (e, _), t in slow.t.items() if e == word)
        assert slow.t[word, fast.word_by_word([word])[0]] == pytest.approx(best)


def test_aligner_finds_the_dictionary(pairs):
    aligner = WordAligner(pairs)
    source = ["the", "old", "cat", "sleeps"]
    assert aligner.word_by_word([*source, "unknown"]) == ["le", "vieux", "chat", "dort"]
    assert aligner.align(source, ["dort", "le", "chat", "vieux", "zut"]).tolist() == [3, 0, 2, 1, -1]
    assert aligner.align([], ["le"]).tolist() == [-1]
    assert aligner.align(source, []).tolist() == []
    with pytest.raises(UserError, match="Got none"):
        WordAligner([([], ["le"])])


def test_log_scores_agree_with_loops():
    rng = stream("lm-score-test")
    texts = [rng.integers(0, 8, rng.integers(1, 7)).tolist() for _ in range(20)]
    counts = NgramModel(np.concatenate(texts), np.cumsum([0, *map(len, texts)]), 10, 4, start=9)
    slow = Loops(texts, 10, 4, start=9)
    new = [[1, 2, 3, 4], [5], [], [0, 0, 7]]
    for order in (2, 3, 4):
        sums, totals = log_scores(counts, new, 9, order, np.array([0, 1, 2, 0]))
        expected = [0.0, 0.0]
        for text, block in zip(new, (0, 1, 2, 0), strict=True):
            for place, token in enumerate(text):
                history = tuple([9, *text][: place + 1][-(order - 1) :])
                expected[block] += math.log(slow.q(token, history))
        assert sums[:2] == pytest.approx(expected)
        assert totals[:3].tolist() == [7, 1, 0]


def test_table_against_one_sentence_at_a_time(matched_models, parallel_corpus, pairs):
    model = matched_models["translation"]
    table = measure(model, parallel_corpus, [TranslationStages(sentences=40)])["translation_stages"]
    rows = {(row["measure"], row["n"], row["rank_bin"]): row for row in table.to_dict("records")}
    references = [one.translation for one in parallel_corpus]
    outputs = translate(model, [one.text for one in parallel_corpus], beams=1)
    assert rows["chrf", -1, ""]["value"] == pytest.approx(
        np.mean([sentence_chrf(o, [r]).score for o, r in zip(outputs, references, strict=True)])
    )
    expected = corpus_bleu(outputs, [references], lowercase=True, force=True).score
    assert rows["bleu", -1, ""]["value"] == pytest.approx(expected)
    tokenizer = model.target_tokenizer
    known, written = ([tokenizer(text)["input_ids"] for text in texts] for texts in (references, outputs))
    counted = [[place > 0 for place in range(len(text))] for text in known]
    slow = Loops(known, 60, 5, counted=counted)
    for order in (2, 3, 4, 5):
        means = []
        for texts in (written, known):
            logs = [
                math.log(slow.q(token, tuple(text[max(0, place - order + 1) : place])))
                for text in texts
                for place, token in enumerate(text)
                if place
            ]
            means.append(np.mean(logs))
        row = rows["lm_score", order, ""]
        assert row["value"] == pytest.approx(means[0] - means[1])
        assert row["low"] <= row["value"] <= row["high"]
    words = [words_of(text) for text in outputs]
    assert rows["degenerate", -1, ""]["value"] == np.mean([is_degenerate(one) for one in words])
    counts = Counter(word for _, target in pairs for word in target)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    top = set(ranked[:10])
    hits = sum(
        min(number, target.count(word))
        for output, (_, target) in zip(words, pairs, strict=True)
        for word, number in Counter(output).items()
        if word in top
    )
    total = sum(word in top for output in words for word in output)
    if total:
        assert rows["unigram_precision", -1, "1-10"]["value"] == pytest.approx(hits / total)
        assert rows["unigram_precision", -1, "1-10"]["count"] == total


def translated(pairs, outputs):
    sources, references = ([list(side) for side in sides] for sides in zip(*pairs, strict=True))
    return Translated(
        sources=sources, references=references, outputs=outputs, sentence_ids=np.arange(len(pairs), dtype=np.int64)
    )


def test_references_are_perfect_and_reversed_ones_are_not(pairs):
    aligner = WordAligner(pairs)
    long = [pair for pair in pairs if len(set(pair[0])) == len(pair[0]) > 2]
    ranks = {"le": 1, "chat": 2}
    straight = order_rows(translated(long, [list(target) for _, target in long]), aligner, seed=0)
    back = order_rows(translated(long, [list(target)[::-1] for _, target in long]), aligner, seed=0)
    for forth, reverse in zip(straight[:3], back[:3], strict=True):
        assert forth["value"] == 1
        assert forth["baseline"] < 0.9
        assert reverse["value"] == 0
    (precision, rest, lexical) = word_rows(translated(long, [list(t) for _, t in long]), aligner, ranks)
    assert (precision["rank_bin"], rest["rank_bin"]) == ("1-10", "1001-")
    assert precision["value"] == rest["value"] == lexical["value"] == 1
    assert lexical["baseline"] < 1


def test_degenerate_outputs_are_counted_and_left_out_of_the_order(pairs):
    aligner = WordAligner(pairs)
    long = [pair for pair in pairs if len(set(pair[0])) == len(pair[0]) > 2][:4]
    outputs = [list(long[0][1]), [], ["le"] * 5, ["zut", "alors"]]
    rows = {row["measure"]: row for row in order_rows(translated(long, outputs), aligner, seed=0)}
    assert rows["degenerate"]["value"] == 0.5
    assert rows["degenerate"]["baseline"] == 0
    assert (rows["frs_a"]["count"], rows["frs_a"]["value"]) == (1, 1)
    nothing = order_rows(translated(long, [[]] * 4), aligner, seed=0)
    assert [row["measure"] for row in nothing] == ["degenerate"]
    assert not is_degenerate(["oui"])


def test_order_of_one_output_is_its_fuzzy_reordering(pairs):
    aligner = WordAligner(pairs)
    source = ["the", "old", "cat", "sleeps", "a"]
    words = Translated(
        sources=[source], references=[[]], outputs=[["le", "un", "dort", "zut", "chat"]], sentence_ids=np.array([3])
    )
    rows = {row["measure"]: row["value"] for row in order_rows(words, aligner, seed=0)}
    expected = fuzzy_reordering([0, 4, 3, 2])
    assert (rows["frs_a"], rows["frs_b"], rows["tau_share"]) == (expected.frs_a, expected.frs_b, expected.tau_share)


def test_words_are_matched_as_often_as_they_occur():
    hits, totals = matched([["a", "a", "b"], []], [["a", "c"], ["a"]], lambda word: word != "b")
    assert (hits.tolist(), totals.tolist()) == ([1, 0], [2, 0])


def test_batches_and_the_order_of_lines_change_nothing(matched_models, parallel_corpus):
    model = matched_models["translation"]
    order = np.random.default_rng(0).permutation(len(parallel_corpus))
    first, second = (
        measure(model, corpus, [TranslationStages(sentences=30, pairs=35)], options, ranks_from=parallel_corpus)
        for corpus, options in (
            (parallel_corpus, None),
            (parallel_corpus.select(order), PassOptions(tokens_per_batch=16)),
        )
    )
    first, second = (tables["translation_stages"] for tables in (first, second))
    assert first["measure"].tolist() == second["measure"].tolist()
    for column in ("value", "low", "high", "baseline"):
        np.testing.assert_allclose(first[column], second[column])


def test_what_cannot_be_measured_is_said(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="does not translate"):
        measure(matched_models["causal-lm"], parallel_corpus, [TranslationStages()])
    with pytest.raises(UserError, match="Got 0"):
        TranslationStages(sentences=0)
