"""The order of a corpus's lines decides nothing: neither which sentences are measured nor any number."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.flow import PassOptions, measure
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.studies import AnalysisPlan, standard_measures
from infoflow.training import ModelConfig, build_models

pytestmark = pytest.mark.slow


# Line numbers of sentences that a table shows; they differ, and lead to the same sentences.
LINES = ("sentence", "neighbour_sentence")
# The drawing of one set of points by t-SNE: its descent amplifies the rounding of sums.
DRAWN = ("x", "y")


@pytest.fixture(scope="module")
def rows():
    """Sentences with trees and translations, of which some stand there twice with another translation or tree."""
    found = [dict(row) for row in generate_grammar(80).dataset]
    for number in range(0, 30, 3):
        again = dict(found[number])
        if number % 2:
            again["translation"] = found[number + 1]["translation"]
        elif number % 4:
            again["deprel"] = again["deprel"][::-1]
        found.append(again)
    return found


@pytest.fixture(scope="module")
def models(rows):
    source, target = (train_tokenizer((row[side] for row in rows), vocab_size=120) for side in ("text", "translation"))
    config = ModelConfig(width=16, layers=2, heads=2, feedforward=32, initializer_range=0.1, positions=80)
    objectives = [make_objective(name) for name in ("causal-lm", "masked-lm", "translation")]
    vocabularies = Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target)
    built = build_models(objectives, config, *vocabularies, seed=0)
    loaded = {name: load_model(module, tokenizer=source) for name, module in built.items()}
    return loaded | {"translation": replace(loaded["translation"], target_tokenizer=target)}


def corpus_of(rows):
    tags = [column for column in rows[0] if column not in ("text", "translation", "words", "word_starts")]
    data = Dataset.from_list(rows)
    return Corpus.from_dataset(data, translation="translation", words="words", tags=tags, name="lines")


def measured(model, rows):
    plan = AnalysisPlan(
        occurrences=300,
        types=20,
        clusters=10,
        clusterings=1,
        distance_occurrences=200,
        neighbour_occurrences=150,
        neighbours=2,
        frequency_occurrences=60,
        lens_steps=5,
        lens_tokens=8,
        relevance_sentences=4,
        importance_sentences=20,
        ablation_sentences=6,
        probe_sentences=12,
    )
    corpus = corpus_of(rows)
    return corpus, measure(model, corpus, standard_measures(plan), PassOptions(tokens_per_batch=512))


@pytest.mark.filterwarnings("ignore:PWCCA of .* tokens in")
@pytest.mark.parametrize(
    ("objective", "order"), [("causal-lm", "reversed"), ("masked-lm", "shuffled"), ("translation", "shuffled")]
)
def test_every_table_is_the_same_for_lines_in_another_order(models, rows, objective, order):
    turned = rows[::-1] if order == "reversed" else [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    (corpus, tables), (other, again) = (measured(models[objective], lines) for lines in (rows, turned))
    assert tables.keys() == again.keys()
    assert sum(len(table) > 0 for table in tables.values()) >= 20
    for name, table in tables.items():
        first, second = (
            table.drop(columns=[*DRAWN], errors="ignore"),
            again[name].drop(columns=[*DRAWN], errors="ignore"),
        )
        for column in table.columns.intersection(LINES):
            assert texts(corpus, first.pop(column)) == texts(other, second.pop(column))
        assert_same(name, first, second)


def texts(corpus, lines) -> list[str]:
    """Of each line its text; −1 is no line."""
    return ["" if line < 0 else corpus[line].text for line in lines]


def assert_same(name, first, second):
    assert len(first) == len(second), name
    for column in first:
        a, b = first[column], second[column]
        if column == "replicates":
            a, b = (pd.Series(np.concatenate(x.to_list())) if len(x) else pd.Series(dtype=float) for x in (a, b))
        pd.testing.assert_series_equal(a, b, rtol=1e-5, atol=1e-7, check_names=False, obj=f"{name}.{column}")


def test_copies_of_a_sentence_have_numbers_of_their_own_whatever_their_order(rows):
    first, second = (
        sorted(zip(map(str, lines), corpus_of(lines).content_ids.tolist(), strict=True)) for lines in (rows, rows[::-1])
    )
    assert first == second
    ids = {number for _, number in first}
    assert len(ids) == len(rows)
    assert min(ids) >= 0


def test_a_sentence_keeps_its_number_when_the_corpus_grows(rows):
    few = rows[:20]
    np.testing.assert_array_equal(corpus_of(few).content_ids, corpus_of(rows).select(np.arange(20)).content_ids)
