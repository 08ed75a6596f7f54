"""Padding on the right, and no mask where nothing is padded."""

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.objectives import SENTENCE_FIELDS, Corrupted, Field, Vocabulary, collate

SOURCE, TARGET = (Vocabulary(size=30, pad=pad, start=2, end=3) for pad in (0, 1))


def example(*inputs: int, target: tuple[int, ...] | None = None) -> Corrupted:
    tokens = np.array(inputs)
    labels = tokens if target is None else np.array(target)
    arrays = {"input_ids": tokens, "labels": labels}
    if target is not None:
        arrays["decoder_input_ids"] = labels
    return Corrupted(arrays=arrays, selected=np.zeros(len(tokens), dtype=bool))


def test_padding_and_mask() -> None:
    batch = collate([example(7, 8, 9), example(5)], SENTENCE_FIELDS, SOURCE, TARGET)
    assert batch.input_ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert batch.labels.tolist() == [[7, 8, 9], [5, -100, -100]]
    assert batch.attention_mask is not None
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (batch.source_tokens, batch.target_tokens, batch.supervised_tokens) == (4, 0, 4)


def test_equal_lengths_need_no_mask() -> None:
    assert collate([example(7, 8), example(5, 6)], SENTENCE_FIELDS, SOURCE, TARGET).attention_mask is None


def test_the_decoder_pads_with_its_own_token() -> None:
    batch = collate([example(7, 8, target=(20,)), example(5, 6, target=(21, 22))], SENTENCE_FIELDS, SOURCE, TARGET)
    assert batch.decoder_input_ids is not None
    assert batch.decoder_input_ids.tolist() == [[20, 1], [21, 22]]
    assert batch.labels.tolist() == [[20, -100], [21, 22]]
    assert (batch.source_tokens, batch.target_tokens, batch.supervised_tokens) == (4, 3, 3)


PAIR_FIELDS = {
    **SENTENCE_FIELDS,
    "token_type_ids": Field(pad=1),
    "pair_label": Field(),
    "sees": Field(pad=False),
    "weights": Field(pad=0.5),
}


def pair(length: int, label: int) -> Corrupted:
    tokens = np.arange(10, 10 + length)
    arrays = {
        "input_ids": tokens,
        "labels": tokens,
        "token_type_ids": (tokens > 11).astype(np.int64),
        "pair_label": np.array(label),
        "sees": np.tril(np.ones((1, length, length), dtype=bool)),
        "weights": np.full(length, 0.25),
    }
    return Corrupted(arrays=arrays, selected=np.zeros(length, dtype=bool))


def test_each_name_is_padded_by_its_field_whatever_its_axes() -> None:
    batch = collate([pair(3, 1), pair(2, 0)], PAIR_FIELDS, SOURCE)
    assert batch["token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert batch["pair_label"].tolist() == [1, 0]
    assert batch["sees"].dtype == torch.bool
    assert batch["sees"].shape == (2, 1, 3, 3)  # example, head, query, key
    assert batch["sees"][0, 0].tolist() == np.tril(np.ones((3, 3), dtype=bool)).tolist()
    assert batch["sees"][1, 0].tolist() == [[True, False, False], [True, True, False], [False, False, False]]
    assert batch["weights"].tolist() == [[0.25, 0.25, 0.25], [0.25, 0.25, 0.5]]
    assert batch["weights"].dtype == torch.float32
    assert {batch[name].dtype for name in ("input_ids", "labels", "token_type_ids", "pair_label")} == {torch.int64}
    assert len(batch) == 2


def test_an_objective_s_own_mask_takes_the_place_of_the_one_for_padding() -> None:
    arrays = [{"input_ids": np.arange(n), "attention_mask": np.eye(n, dtype=bool)[None]} for n in (2, 3)]
    examples = [Corrupted(arrays=one, selected=np.zeros(len(one["input_ids"]), dtype=bool)) for one in arrays]
    batch = collate(examples, {**SENTENCE_FIELDS, "attention_mask": Field(pad=False)}, SOURCE)
    assert batch.attention_mask is not None
    assert batch.attention_mask.shape == (2, 1, 3, 3)
    assert batch.supervised_tokens == 0


def test_an_array_without_a_field_is_refused() -> None:
    with pytest.raises(UserError, match="Got token_type_ids without a field"):
        collate([pair(3, 1)], SENTENCE_FIELDS, SOURCE)
