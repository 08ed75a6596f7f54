"""Random tokens in the input of any objective: labels, hidden tokens and evaluation are those without."""

import pickle

import numpy as np
import pytest
from objectives.test_every_objective import example_for
from objectives.zoo import SPECIAL, VOCABULARY, mixed

from infoflow.foundation import UserError, stream
from infoflow.objectives import OBJECTIVES, make_objective, takes_token_dropout

TAKE = [name for name in OBJECTIVES if takes_token_dropout(name)]


def pair(name: str, share: float, length: int = 40, seed: int = 0):
    """One example's noise without and with token dropout, from the same generator."""
    plain, noisy = make_objective(name), make_objective(name, token_dropout=share)
    example = example_for(plain, mixed(length, seed), seed)
    return tuple(one.corrupt(example, stream("dropout", seed), VOCABULARY) for one in (plain, noisy))


@pytest.mark.parametrize("name", TAKE)
@pytest.mark.parametrize("seed", range(3))
def test_only_ordinary_tokens_of_the_input_change(name: str, seed: int) -> None:
    plain, noisy = pair(name, 0.9, seed=seed)
    assert plain.arrays.keys() == noisy.arrays.keys()
    for key in plain.arrays.keys() - {"input_ids", "reversed_ids"}:
        assert np.array_equal(plain[key], noisy[key])
    if "reversed_ids" in noisy.arrays:
        assert np.array_equal(noisy["reversed_ids"], noisy.input_ids[::-1])
    changed = plain.input_ids != noisy.input_ids
    special = np.isin(plain.input_ids, SPECIAL)
    assert not changed[special].any()
    assert not np.isin(noisy.input_ids[changed], SPECIAL).any()
    assert (noisy.selected >= (plain.selected | changed)).all()
    assert changed.any() == bool((~special).sum() > 0)


@pytest.mark.parametrize("name", ["masked-lm", "spanbert", "bart", "mass"])
def test_share_of_replaced_tokens(name: str) -> None:
    """A draw repeats the old token with probability 1 / (ordinary tokens)."""
    changed = asked = 0
    for seed in range(400):
        plain, noisy = pair(name, 0.1, seed=seed)
        asked += int((~np.isin(plain.input_ids, SPECIAL)).sum())
        changed += int((plain.input_ids != noisy.input_ids).sum())
    share = 0.1 * (1 - 1 / len(VOCABULARY.ordinary))
    assert abs(changed / asked - share) < 4 * np.sqrt(share * (1 - share) / asked)


@pytest.mark.parametrize("name", TAKE)
def test_held_out_text_is_read_clean(name: str) -> None:
    noisy = make_objective(name, token_dropout=0.3)
    assert noisy.name == name
    assert noisy.for_evaluation() == make_objective(name).for_evaluation()
    assert noisy.on_text() == make_objective(name).on_text()


def test_it_travels_to_another_process_with_its_options() -> None:
    noisy = make_objective("masked-lm", token_dropout=0.25, rate=0.3)
    again = pickle.loads(pickle.dumps(noisy))
    assert again == noisy
    assert (again.token_dropout, again.rate) == (0.25, 0.3)


def test_what_tells_random_tokens_apart_cannot_be_given_more_of_them() -> None:
    with pytest.raises(UserError, match="electra has no option token_dropout"):
        make_objective("electra", token_dropout=0.1)


def test_a_share_is_a_probability() -> None:
    with pytest.raises(UserError, match=r"masked-lm\.token_dropout"):
        make_objective("masked-lm", token_dropout=1.5)
