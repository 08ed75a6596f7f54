"""Padding on the right, and no mask where nothing is padded."""

import numpy as np

from infoflow.objectives import Corrupted, collate


def example(*inputs: int, target: tuple[int, ...] | None = None) -> Corrupted:
    tokens = np.array(inputs)
    labels = tokens if target is None else np.array(target)
    return Corrupted(
        inputs=tokens,
        labels=labels,
        selected=np.zeros(len(tokens), dtype=bool),
        decoder_inputs=None if target is None else labels,
    )


def test_padding_and_mask() -> None:
    batch = collate([example(7, 8, 9), example(5)], pad=0, decoder_pad=1)
    assert batch.input_ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert batch.labels.tolist() == [[7, 8, 9], [5, -100, -100]]
    assert batch.attention_mask is not None
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (batch.source_tokens, batch.target_tokens, batch.supervised_tokens) == (4, 0, 4)


def test_equal_lengths_need_no_mask() -> None:
    assert collate([example(7, 8), example(5, 6)], pad=0, decoder_pad=1).attention_mask is None


def test_the_decoder_pads_with_its_own_token() -> None:
    batch = collate([example(7, 8, target=(20,)), example(5, 6, target=(21, 22))], pad=0, decoder_pad=1)
    assert batch.decoder_input_ids is not None
    assert batch.decoder_input_ids.tolist() == [[20, 1], [21, 22]]
    assert batch.labels.tolist() == [[20, -100], [21, 22]]
    assert (batch.source_tokens, batch.target_tokens, batch.supervised_tokens) == (4, 3, 3)
