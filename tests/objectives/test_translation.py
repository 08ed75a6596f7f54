"""Teacher forcing: the decoder reads the target up to t and predicts t + 1."""

import numpy as np
import pytest
from transformers import BertConfig, BertForMaskedLM

from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, Translation

SOURCE, TARGET = np.array([2, 10, 11, 3]), np.array([2, 20, 21, 22, 3])
PAIR = Example(texts=(SOURCE,), translation=TARGET)


def test_decoder_reads_from_the_start_and_predicts_to_the_end(vocabulary) -> None:
    result = Translation().corrupt(PAIR, stream("noise"), vocabulary)
    assert result.input_ids.tolist() == [2, 10, 11, 3]
    assert result.decoder_input_ids is not None
    assert result.decoder_input_ids.tolist() == [2, 20, 21, 22]
    assert result.labels.tolist() == [20, 21, 22, 3]


def test_token_dropout_touches_the_source_only(vocabulary) -> None:
    result = Translation(token_dropout=1.0).corrupt(PAIR, stream("noise"), vocabulary)
    assert result.selected.tolist() == [False, True, True, False]
    assert result.decoder_input_ids is not None
    assert result.decoder_input_ids.tolist() == [2, 20, 21, 22]
    assert result.labels.tolist() == [20, 21, 22, 3]


def test_decoder_dropout_hides_what_the_decoder_reads_and_nothing_that_it_predicts(vocabulary) -> None:
    all_hidden = Translation(decoder_dropout=1.0).corrupt(PAIR, stream("noise"), vocabulary)
    assert all_hidden.decoder_input_ids is not None
    assert all_hidden.decoder_input_ids.tolist() == [2, 2, 2, 2]
    assert all_hidden.labels.tolist() == [20, 21, 22, 3]
    assert all_hidden.input_ids.tolist() == SOURCE.tolist()
    long = Example(texts=(SOURCE,), translation=np.concatenate([[2], np.full(10_000, 20), [3]]))
    some = Translation(decoder_dropout=0.3).corrupt(long, stream("noise"), vocabulary)
    assert some.decoder_input_ids is not None
    assert (some.decoder_input_ids == 2).mean() == pytest.approx(0.3, abs=4 * (0.21 / 10_000) ** 0.5)
    assert Translation(decoder_dropout=0.3, token_dropout=0.1).for_evaluation() == Translation()


def test_sentences_without_translation_are_refused(vocabulary) -> None:
    with pytest.raises(UserError, match="parallel corpus"):
        Translation().corrupt(Example(texts=(SOURCE,)), stream("noise"), vocabulary)


def test_a_model_without_decoder_is_refused(vocabulary) -> None:
    shape = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(**shape, intermediate_size=8))
    objective = Translation()
    batch = objective.collate([objective.corrupt(PAIR, stream("noise"), vocabulary)], vocabulary)
    with pytest.raises(UserError, match="Got BertForMaskedLM"):
        objective.loss(model, batch, batch.noise)
