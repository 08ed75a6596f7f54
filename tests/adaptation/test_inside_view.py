"""All tables at once: those of the single measures, skipped with a reason or left out where they fail."""

import numpy as np
import pytest
from adaptation.toy_task import ToyTask, toy_before, toy_corpus, toy_data

from infoflow.adaptation import INSIDE, INSIDE_TABLES, TUNED, InsideSizes, inside_view, probes_after_tuning
from infoflow.corpus import generate_grammar
from infoflow.flow import measure
from infoflow.probing import Probe

pytestmark = pytest.mark.slow

SMALL = InsideSizes(probe_sentences=40, swap_points=1, label_texts=1000, words=10_000)


@pytest.fixture(scope="module")
def tables(tuned):
    return inside_view(
        toy_before(), tuned, ToyTask(), toy_data(), untrained=toy_before(5), pretraining=toy_corpus(30, 5),
        sizes=SMALL, seeds=[4, 6],
    )  # fmt: skip


def test_every_table_is_there_and_a_caller_can_tell_how_models_were_tuned(tables):
    assert set(tables) == set(INSIDE)
    told = {column.name: 0 if column.dtype == "int64" else "" for column in TUNED}
    for name, frame in tables.items():
        assert len(frame)
        INSIDE_TABLES[name].conform(frame.assign(**told))
    assert set(tables["tuning_weights"].tuning_seed) == {4, 6}


def test_one_failure_costs_no_other_table(tuned, monkeypatch):
    def fails(*args, **options):
        raise RuntimeError("not today")

    monkeypatch.setattr("infoflow.subjects.adaptation.measures._inside_view.tuning_weights", fails)
    wanted = ["tuning_weights", "tuning_change"]
    with pytest.warns(UserWarning, match="tuning_weights of bert failed and is left out"):
        found = inside_view(toy_before(), tuned[:1], ToyTask(), toy_data(), only=wanted)
    assert set(found) == {"tuning_change"}
    with pytest.raises(RuntimeError):
        inside_view(toy_before(), tuned[:1], ToyTask(), toy_data(), only=wanted[:1])


def test_what_says_nothing_is_skipped(tuned):
    found = inside_view(toy_before(), tuned[:1], ToyTask(shape="choice"), toy_data(), only=["label_by_layer"])
    assert found == {}


def test_probes_are_those_of_the_probing_room(tuned):
    corpus = generate_grammar(60, seed=1)
    table = probes_after_tuning(toy_before(), tuned, toy_data().train, tagged=corpus, sentences=60)
    assert set(table.probe) == {"upos", "word", "position"}
    probe = Probe(task="upos", sentences=60, seeds=1, control=False, epochs=8, batch=400, patience=2)
    each = []
    for model in (toy_before(), *tuned):
        scores = measure(model, corpus, [probe])["probe_scores"]
        kept = scores[(scores.metric == "accuracy") & (scores.words == "all")].sort_values("layer")
        each.append(kept["value"].to_numpy(float))
    for state, values in (("before", each[0]), ("after", np.mean(each[1:], axis=0))):
        got = table[(table.probe == "upos") & (table.state == state)].sort_values("layer")["value"]
        np.testing.assert_allclose(got.astype(float), values)


def test_without_annotation_only_words_and_places_are_asked(tables):
    assert set(tables["probes_after_tuning"].probe) == {"word", "position"}
