"""What a loss draws follows from its examples alone."""

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.objectives import Example, Noise

KEYS = tuple(("noise", 0, number) for number in (7, 3, 9))


def chosen(*lengths: int, width: int = 8) -> torch.Tensor:
    """Every second position of each example, padded to `width`."""
    return torch.tensor([[place < length and place % 2 == 0 for place in range(width)] for length in lengths])


def test_an_example_draws_the_same_in_every_batch() -> None:
    together = Noise(KEYS).uniform("sample", chosen(8, 3, 5), 4)
    assert together.shape == (4 + 2 + 3, 4)
    alone = [Noise((key,)).uniform("sample", chosen(n, width=n), 4) for key, n in zip(KEYS, (8, 3, 5), strict=True)]
    assert torch.equal(together, torch.cat(alone))
    turned = Noise(KEYS[::-1]).uniform("sample", chosen(5, 3, 8, width=20), 4)
    assert torch.equal(turned, torch.cat(alone[::-1]))


def test_a_purpose_has_numbers_of_its_own_and_each_call_the_same() -> None:
    noise, all_of_it = Noise(KEYS), chosen(8, 8, 8)
    first = noise.uniform("sample", all_of_it)
    assert torch.equal(first, noise.uniform("sample", all_of_it))
    assert not torch.equal(first, noise.uniform("other", all_of_it))
    assert len(set(first.tolist())) == len(first)
    assert bool(((first >= 0) & (first < 1)).all())


def test_a_loss_that_draws_needs_keys() -> None:
    with pytest.raises(UserError, match=r"a key for each of 2 examples\. Got 0"):
        Noise().uniform("sample", chosen(2, 2))


def test_an_example_of_several_texts_is_not_one_text() -> None:
    text = np.array([2, 5, 3])
    assert Example(texts=(text,)).text is text
    with pytest.raises(UserError, match="Got 2 texts in an example"):
        _ = Example(texts=(text, text)).text
