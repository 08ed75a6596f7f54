"""Bad input and traps of retrieval: what each gets."""

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.foundation import SilentDisplay, UserError, use_display
from infoflow.objectives import Noise
from infoflow.retrieval import NULL, Library, Passages, build_passage_index
from infoflow.subjects.retrieval.training import IndexRefresh, query_rows
from infoflow.training import Step, TrainingData

from .tiny_arms import tiny_arm, tiny_data, tiny_library, tiny_world


class Told(SilentDisplay):
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def corpus(*texts: str) -> Corpus:
    return Corpus.from_frame(pd.DataFrame({"text": list(texts)}), name="mine")


def word() -> str:
    return tiny_world()[0].passages()[0]["text"].split()[0]


def test_special_tokens_in_a_query_are_ordinary_text():
    _, tokenizer, _ = tiny_world()
    told = Told()
    with use_display(told):
        rows = query_rows(corpus(f"{word()} [MASK] [SEP] {word()}"), tokenizer, tiny_library(), keep_spanless=True)
    tokens = tokenizer.convert_ids_to_tokens(rows.row(0).tolist())
    assert tokens == ["[CLS]", word(), "[UNK]", "[UNK]", word(), "[SEP]"]
    assert rows.num_specials == 2
    assert "mine: 2 special tokens that occur in sentences are read as text." in told.notes
    plain = query_rows(corpus(f"{word()} {word()}"), tokenizer, tiny_library(), keep_spanless=True)
    assert plain.num_specials == 0
    assert tokenizer.convert_ids_to_tokens(plain.row(0).tolist()) == ["[CLS]", word(), word(), "[SEP]"]


def test_a_query_beyond_the_readers_positions_is_told():
    _, tokenizer, vocabulary = tiny_world()
    for length, fits in ((61, True), (62, False), (100, False)):
        rows = query_rows(corpus(" ".join([word()] * length)), tokenizer, tiny_library(), keep_spanless=True)
        objective, model = tiny_arm("retrieve-bm25")
        data = TrainingData(source=rows, vocabulary=vocabulary)
        batch = data.batch(objective.for_evaluation(), np.arange(1), ("long",), 0)
        if fits:
            assert np.isfinite(objective.loss(model.eval(), batch, Noise())[objective.name].total.item())
            continue
        with pytest.raises(UserError, match=f"64 positions.*query of {length + 2} tokens"):
            objective.loss(model.eval(), batch, Noise())


def test_more_passages_than_there_are_are_asked_for_with_one_warning():
    _, tokenizer, vocabulary = tiny_world()
    rows = query_rows(corpus(f"{word()} {word()}"), tokenizer, tiny_library(), keep_spanless=True)
    objective, model = tiny_arm("retrieve-bm25", k=500)
    batch = TrainingData(source=rows, vocabulary=vocabulary).batch(objective.for_evaluation(), np.arange(1), ("k",), 0)
    told = Told()
    with use_display(told):
        for _ in range(2):
            found = objective.loss(model.eval(), batch, Noise())
    assert np.isfinite(found[objective.name].total.item())
    assert told.warnings == [f"A search requests 500 passages, but there are only {len(model.passage_library)}."]


def test_every_passage_excluded_leaves_the_empty_one():
    _, model = tiny_arm("retrieve-bm25")
    _, tokenizer, _ = tiny_world()
    ids = torch.tensor([[tokenizer.cls_token_id, tokenizer.convert_tokens_to_ids(word()), tokenizer.sep_token_id]])
    nothing = np.zeros(1, dtype=np.int64)
    choice = model.choose(ids, None, 2, nothing - 1, nothing, [range(len(model.passage_library))], nothing.astype(bool))
    assert choice.there.tolist() == [[False, False, True]]
    assert set(choice.ids[0]) == {NULL}


def test_a_resumed_index_of_other_vectors_is_told():
    """As other hardware would make them from the same weights."""
    objective, model = tiny_arm("retrieve-learned")
    batch = tiny_data().batch(objective, np.arange(6), ("begin",), 0)
    hook = IndexRefresh(model)
    hook.on_step_begin(Step(update=1, total=4, learning_rate=0.1, module=model, objective=objective, batches=[batch]))
    for change, told in ((0, 0), (1, 1)):
        state = hook.state_dict()
        state["numbers"] = state["numbers"] + torch.tensor([0, change, 0])
        with use_display(display := Told()):
            IndexRefresh(tiny_arm("retrieve-learned")[1]).load_state_dict(state)
        assert len(display.warnings) == told
    digests = [f"{int(number):x}" for number in (state["numbers"][1] - 1, state["numbers"][1])]
    assert all(one in display.warnings[0] for one in digests)
    assert "not reproducible bit for bit" in display.warnings[0]


def test_vectors_that_are_no_numbers_stop_the_training():
    objective, model = tiny_arm("retrieve-learned")
    batch = tiny_data().batch(objective.for_evaluation(), np.arange(3), ("nan",), 0)
    with torch.no_grad():
        model.retriever.queries.norm.bias[0] = torch.nan
    with pytest.raises(UserError, match=r"must be finite. Got NaN or infinity.\nTrain with a lower learning rate"):
        objective.loss(model, batch, Noise())


def test_long_passages_are_cut_at_their_end_and_counted():
    _, tokenizer, _ = tiny_world()
    rows = [{"title": "", "text": " ".join([word()] * length)} for length in (5, 13, 14, 40)]
    library = Library(Passages.from_rows(rows), tokenizer, max_tokens=16)
    assert library.num_cut == 2
    assert [len(library.encoded(id)[0]) for id in range(4)] == [8, 16, 16, 16]


def test_a_question_may_ask_for_any_number_of_passages(tmp_path):
    (tmp_path / "mine.txt").write_text("the cat sat\nanother dog\n")
    index = build_passage_index(str(tmp_path / "mine.txt"), tmp_path / "index")
    assert len(index.look_up(["cat"], 10**12)) == 1
    with pytest.raises(UserError, match="k must be at least 1"):
        index.look_up(["cat"], 0)
