"""The dense retriever, its warm start, and the spans that queries ask for."""

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_library, tiny_retriever, tiny_world
from torch.nn.functional import log_softmax
from transformers import AutoModel

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, Noise, make_objective
from infoflow.retrieval import Library, Passages, Retriever, overlap, salient_spans
from infoflow.subjects.retrieval.training import PassageRows, query_rows
from infoflow.training import TrainConfig, TrainingData, read_log, train


def passage_data(library=None):
    return TrainingData(source=PassageRows(library or tiny_library()), vocabulary=tiny_world()[2])


def test_two_encoders_begin_equal_and_are_two():
    retriever = tiny_retriever(shared=False)
    pairs = zip(retriever.queries.parameters(), retriever.passages.parameters(), strict=True)
    assert all(torch.equal(one, other) and one is not other for one, other in pairs)
    shared = tiny_retriever()
    assert shared.queries is shared.passages


def test_weights_are_a_function_of_the_seed():
    state = torch.random.get_rng_state()
    one, other = tiny_retriever(), tiny_retriever()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("pooling", ["mean", "first"])
@torch.no_grad()
def test_padding_changes_no_vector_and_scores_are_bounded(pooling):
    retriever = tiny_retriever(pooling=pooling).eval()
    ids = torch.tensor([[2, 7, 9, 3]])
    padded, mask = torch.tensor([[2, 7, 9, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1, 0, 0]])
    torch.testing.assert_close(retriever.queries(ids), retriever.queries(padded, mask))
    library = tiny_library()
    vectors = library.vectors(retriever.passages, range(len(library)))
    scores = retriever.scores(retriever.queries(ids), vectors)
    assert scores.abs().max() <= 8**0.5 + 1e-4


@torch.no_grad()
def test_the_index_holds_the_vectors_of_single_passages():
    library, retriever = tiny_library(), tiny_retriever()
    index = library.embed(retriever.passages)
    for id in (0, 5, len(library) - 1):
        torch.testing.assert_close(index.vectors[id], library.vectors(retriever.passages, [id])[0])
    assert retriever.training  # as it was


def test_saved_and_loaded(tmp_path):
    retriever = tiny_retriever(shared=False, vector_width=6)
    retriever.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert isinstance(loaded, Retriever)
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in retriever.state_dict().items())


# -- inverse cloze -----------------------------------------------------------------------------------------------------


def test_the_sentence_leaves_its_passage_at_the_rate():
    objective, vocabulary = make_objective("inverse-cloze"), tiny_world()[2]
    rows = PassageRows(tiny_library())
    example = next(rows.example(n) for n in range(99) if len(rows.example(n).texts) == 2)
    removed = 0
    for draw in range(300):
        one = objective.corrupt(example, stream("ict", draw), vocabulary)
        inside = " ".join(map(str, one.input_ids[1:-1])) in " ".join(map(str, one["passage_ids"]))
        removed += not inside
        assert one["counted"]
        assert any(np.array_equal(one.input_ids[1:-1], sentence) for sentence in example.texts)
    assert removed / 300 == pytest.approx(0.9, abs=0.06)


def test_a_passage_of_one_sentence_counts_only_where_it_keeps_it():
    vocabulary = tiny_world()[2]
    example = Example(texts=(np.array([7, 8, 9]),), labels={"title": np.array([7]), "key": np.array(1)})
    draws = [
        make_objective("inverse-cloze", mask_rate=rate).corrupt(example, stream("x"), vocabulary)["counted"].item()
        for rate in (0.0, 1.0)
    ]
    assert draws == [True, False]


def test_sentences_make_up_the_passage():
    library = tiny_library()
    rows = PassageRows(library)
    for id in range(len(library)):
        assert np.array_equal(np.concatenate(rows.example(id).texts), library.body(id))
        assert len(rows.row(id)) == rows.lengths[id]


def test_the_loss_is_that_of_every_query_written_out():
    _, tokenizer, _ = tiny_world()
    texts = [*tiny_library().passages.texts()][:6]
    library = Library(Passages.from_rows([*texts, texts[0]]), tokenizer)  # one passage twice
    objective, retriever = make_objective("inverse-cloze"), tiny_retriever(shared=False).double()
    batch = passage_data(library).batch(objective, np.arange(7), ("ict",), 0)
    found = objective.loss(retriever, batch, batch.noise)["inverse-cloze"]
    total, count = 0.0, 0
    passages = [
        retriever.passages(ids[real.bool()][None], None, segments[real.bool()][None])[0]
        for ids, real, segments in zip(
            batch["passage_ids"], batch["passage_mask"], batch["passage_segments"], strict=True
        )
    ]
    for row in range(7):
        if not batch["counted"][row]:
            continue
        query = retriever.queries(batch.input_ids[row][batch.real[row]][None])[0]
        twin = {0: 6, 6: 0}.get(row)
        kept = [n for n in range(7) if n != twin]
        scores = torch.stack([query @ passages[n] / 8**0.5 for n in kept])
        total, count = total - log_softmax(scores, dim=0)[kept.index(row)], count + 1
    torch.testing.assert_close(found.total, total)
    assert found.count == count == objective.counts(batch)["inverse-cloze"]


def test_training_brings_the_loss_below_chance(tmp_path):
    retriever = tiny_retriever()
    config = TrainConfig(
        updates=40, batch_tokens=10_000, batch_sentences=16, log_every=5, device="cpu", learning_rate=5e-3
    )
    train(make_objective("inverse-cloze"), config, passage_data(), retriever, tmp_path)
    losses = [line["loss"] for line in read_log(tmp_path / "log.jsonl") if "loss" in line]
    assert losses[-1] < losses[0] - 0.5


def test_what_does_not_fit_is_told():
    objective, vocabulary = make_objective("inverse-cloze"), tiny_world()[2]
    with pytest.raises(UserError, match="plain sentence"):
        objective.corrupt(Example(texts=(np.array([2, 7, 3]),)), stream("x"), vocabulary)
    batch = passage_data().batch(objective, np.arange(3), ("ict",), 0)
    with pytest.raises(UserError, match="label_smoothing"):
        objective.loss(tiny_retriever(), batch, Noise(), label_smoothing=0.1)


# -- queries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tags", "wanted"),
    [
        ("He met Ada Lund in Oslo on 5 March 1907 .", None, [(2, 4), (5, 6), (7, 10)]),
        ("Nothing of note was seen .", None, []),
        ("it was may again", None, []),
        ("the home of ada lund is oslo", ["", "relation", "", "subject", "subject", "", "object"], [(6, 7)]),
        ("ada lund saw ben", ["PER", "PER", "", "PER"], [(0, 2), (3, 4)]),
    ],
)
def test_salient_spans(text, tags, wanted):
    assert salient_spans(text.split(), tags) == wanted


def test_queries_of_any_corpus_and_what_they_must_not_read():
    _, tokenizer, _ = tiny_world()
    corpus = Corpus.from_sentences(["the home of Ada is known", "nothing here", "it is known that Ben is it"])
    library = tiny_library()
    rows = query_rows(corpus, tokenizer, library, gold=np.array([3, -1, 4]), excluded=[[1], [], [2, 0]])
    assert rows.sentence_ids.tolist() == [0, 2]
    labels = rows.example(1).labels
    assert labels["spans"].tolist() == [[5, 6]]  # behind [CLS]
    assert (int(labels["gold"]), labels["excluded"].tolist()) == (4, [0, 2])
    with pytest.raises(UserError, match="the same token for every word"):
        query_rows(Corpus.from_sentences(["nothing here"]), tokenizer, library)
    with pytest.raises(UserError, match="gold and excluded"):
        query_rows(corpus, tokenizer, library, gold=np.array([1]))


def test_overlap():
    stale, fresh = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 9], [4, 5, 6]])
    assert overlap(stale, fresh) == pytest.approx(0.833333, abs=1e-6)
    few = np.array([[1, 2, -1], [4, -1, -1], [-1, -1, -1]])
    assert overlap(few, few) == 1
    assert overlap(few, np.array([[2, 7, 8], [4, -1, -1], [-1, -1, -1]])) == pytest.approx((1 / 3 + 1) / 2)
    assert np.isnan(overlap(few[2:], few[2:]))
