"""A masked LM is measured on text that is corrupted as in its own training, by every measure that hides tokens."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.flow import NO_LABEL, PassOptions, Reader, job_key, measure
from infoflow.foundation import UserError
from infoflow.heads import Ablation, Importance, PruningCurve, SpecialGradient
from infoflow.lenses import Lens
from infoflow.objectives import AbstractObjective, Corrupted, MaskedLM
from infoflow.representations import MutualInformation, TokenMap

MEASURES = [
    MutualInformation(clusters=5, types=10, occurrences=60, clusterings=1, regime="training"),
    Lens(steps=2, tokens=8),
    TokenMap(),
    Importance(sentences=10),
    Ablation(sentences=10),
    PruningCurve(sentences=10),
    SpecialGradient(sentences=8),
]


@dataclass(frozen=True, kw_only=True)
class EveryThird(AbstractObjective):
    """Hides the tokens 1, 4, 7, ... of a sentence."""

    name: ClassVar[str] = "every-third"
    layout: ClassVar[str] = "encoder"
    term_weights: ClassVar[dict[str, float]] = {"every-third": 1.0}

    lengthens: bool = False

    @property
    def predicted_share(self) -> float:
        return 1 / 3

    def corrupt(self, example, generator, vocabulary) -> Corrupted:
        tokens = example.text
        selected = (np.arange(len(tokens)) % 3 == 1) & ~vocabulary.is_special[tokens]
        inputs, labels = np.where(selected, vocabulary.mask, tokens), np.where(selected, tokens, NO_LABEL)
        if self.lengthens:
            inputs = np.append(inputs, vocabulary.end)
        return Corrupted(arrays={"input_ids": inputs, "labels": labels}, selected=selected)

    def loss(self, module, batch, noise, label_smoothing=0.0):
        raise NotImplementedError


@pytest.fixture(scope="module")
def model(matched_models):
    return matched_models["masked-lm"]


def hidden_positions(model, corpus, one, options: PassOptions) -> list[int]:
    """Where in its sentences the model read a mask while it was measured."""
    found: list[int] = []
    mask = model.tokenizer.mask_token_id

    def look(_, args) -> None:
        found.extend((args[0] == mask).nonzero()[:, 1].tolist())

    hook = model.module.get_input_embeddings().register_forward_pre_hook(look)
    try:
        measure(model, corpus, [one], options)
    finally:
        hook.remove()
    return found


@pytest.mark.parametrize("one", MEASURES, ids=lambda one: one.name)
def test_every_measure_hides_the_tokens_that_training_hid(model, parallel_corpus, one) -> None:
    own = hidden_positions(model, parallel_corpus, one, PassOptions(tokens_per_batch=300, corruption=EveryThird()))
    assert own
    assert {position % 3 for position in own} == {1}
    usual = hidden_positions(model, parallel_corpus, one, PassOptions(tokens_per_batch=300))
    assert {position % 3 for position in usual} - {1}


def reader_of(model, corpus, corruption=None) -> Reader:
    return Reader(model, corpus, max_length=64, seed=3, decoder=False, corruption=corruption)


def test_a_batch_is_corrupted_sentence_by_sentence_whatever_its_padding(model, parallel_corpus) -> None:
    reader = reader_of(model, parallel_corpus, MaskedLM(rate=0.5))
    rows = reader.rows[:6]
    batch = reader.corrupted_batch(reader.padded(rows), "purpose", 3)
    stream = batch.streams["encoder"]
    for index, row in enumerate(rows):
        alone = reader.corrupted_batch(reader.padded(rows[index : index + 1]), "purpose", 3).streams["encoder"]
        length = int(stream.real[index].sum())
        assert torch.equal(stream.input_ids[index, :length], alone.input_ids[0])
        assert torch.equal(stream.labels[index, :length], alone.labels[0])
        assert bool((stream.labels[index, length:] == NO_LABEL).all())
        clean = reader.sentence_rows(int(row), "clean", 0)["encoder"].tokens
        asked = alone.labels[0].numpy() != NO_LABEL
        np.testing.assert_array_equal(alone.labels[0].numpy()[asked], clean[asked])
        np.testing.assert_array_equal(alone.input_ids[0].numpy()[~asked], clean[~asked])


def test_the_rate_is_that_of_the_objective(model, parallel_corpus) -> None:
    assert reader_of(model, parallel_corpus).predicted_share == 0.15
    assert reader_of(model, parallel_corpus, MaskedLM(rate=0.4)).predicted_share == 0.4
    few, many = (reader_of(model, parallel_corpus, one) for one in (None, MaskedLM(rate=0.6)))
    shares = []
    for reader in (few, many):
        labels = reader.corrupted_batch(reader.padded(reader.rows), "share").streams["encoder"].labels
        shares.append(float((labels != NO_LABEL).sum()))
    assert shares[1] > 3 * shares[0]
    assert few.draws_for(100) > 3 * many.draws_for(100)


class ReadsAll(MutualInformation):
    only_replaced = False


def test_sentences_without_a_replaced_token_change_nothing(model, parallel_corpus) -> None:
    options = {"clusters": 5, "types": 10, "occurrences": 60, "clusterings": 1, "regime": "training"}
    passes = PassOptions(tokens_per_batch=300)
    own, every = (measure(model, parallel_corpus, [one(**options)], passes) for one in (MutualInformation, ReadsAll))
    pd.testing.assert_frame_equal(own["mutual_information"], every["mutual_information"])
    reader = reader_of(model, parallel_corpus)
    reader.use_training_noise(10)
    assert 0 < len(reader.replaced(reader.rows, 0)) < len(reader.rows)


def test_noise_that_moves_tokens_is_refused(model, parallel_corpus) -> None:
    reader = reader_of(model, parallel_corpus, EveryThird(lengthens=True))
    with pytest.raises(UserError, match="keeps each token at its position"):
        reader.corrupted_batch(reader.padded(reader.rows[:2]), "purpose")


def test_the_corruption_is_part_of_a_result_s_key_and_the_usual_one_is_none(model, parallel_corpus) -> None:
    keys = [
        job_key(model, parallel_corpus, [Lens()], PassOptions(corruption=one))
        for one in (None, MaskedLM(), MaskedLM(rate=0.3))
    ]
    assert len(set(keys)) == 3
    assert "corruption" not in PassOptions().key


@dataclass(frozen=True, kw_only=True)
class InPairs(EveryThird):
    """An objective of pairs: of a single text the hidden tokens are left."""

    def corrupt(self, example, generator, vocabulary) -> Corrupted:
        assert len(example.texts) == 2
        return EveryThird.corrupt(self, example, generator, vocabulary)

    def on_text(self) -> AbstractObjective:
        return EveryThird()


def test_an_objective_of_pairs_says_what_a_single_text_reads(model, parallel_corpus) -> None:
    pairs, plain = (reader_of(model, parallel_corpus, one) for one in (InPairs(), EveryThird()))
    one, other = (each.corrupted_batch(each.padded(each.rows[:3]), "purpose") for each in (pairs, plain))
    assert torch.equal(one.streams["encoder"].input_ids, other.streams["encoder"].input_ids)
