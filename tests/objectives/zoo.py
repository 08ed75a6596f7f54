"""What the tests of the objectives share: a vocabulary with everything, texts, and a comparison of random draws."""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from scipy.stats import chi2_contingency

from infoflow.foundation import stream
from infoflow.objectives import Corrupted, Example, Vocabulary

SIZE, FULL_STOP, MASK = 120, 5, 4
PIECES = range(60, 80)  # go on with the word before them
SENTINELS = tuple(range(119, 89, -1))  # <extra_id_0> is the last id
SPECIAL = (0, 1, 2, 3, 4, *reversed(SENTINELS))
ORDINARY = range(5, 90)
TRANSLATE = "translate English to French: "


def _continues() -> np.ndarray:
    return np.array([id in PIECES for id in range(SIZE)])


def vocabulary(**changes) -> Vocabulary:
    """[PAD] 0, [CLS] 2, [SEP] 3, [MASK] 4, a full stop, words, pieces, sentinels; every id has a frequency."""
    settings = {
        "size": SIZE,
        "pad": 0,
        "start": 2,
        "end": 3,
        "mask": MASK,
        "special": SPECIAL,
        "sentinels": SENTINELS,
        "full_stops": (FULL_STOP,),
        "continues": _continues(),
        "counts": np.arange(SIZE) + 1,
        "ids": {TRANSLATE: np.arange(81, 86)},
    }
    return Vocabulary(**{**settings, **changes})


VOCABULARY = vocabulary()


def framed(*tokens: int) -> np.ndarray:
    """[CLS] tokens [SEP]."""
    return np.array([2, *tokens, 3])


def distinct(length: int) -> np.ndarray:
    """[CLS], `length` different words of one piece each, [SEP]."""
    assert length <= 50
    return framed(*range(10, 10 + length))


def mixed(length: int, seed: int = 0) -> np.ndarray:
    """[CLS], `length` words, pieces and full stops at random, [SEP]."""
    return framed(*stream("mixed", seed).integers(5, 90, length))


def words(tokens: np.ndarray) -> list[list[int]]:
    """Positions of each word between the special tokens: a piece and the pieces that follow it."""
    found: list[list[int]] = []
    for place, token in enumerate(tokens.tolist()):
        if token in SPECIAL:
            continue
        if token in PIECES and place - 1 > 0 and tokens[place - 1] not in SPECIAL:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def corrupted(objective, tokens: np.ndarray, times: int, **labels) -> list[Corrupted]:
    """`times` draws of one text's noise."""
    example = Example(texts=(tokens,), labels=labels)
    return [objective.corrupt(example, stream("zoo", number), VOCABULARY) for number in range(times)]


def check_pure(objective, example: Example, seed: int, known: Vocabulary = VOCABULARY) -> Corrupted:
    """Corruption follows from (example, generator) alone and leaves the example as it was; the result."""
    before = [text.copy() for text in example.texts]
    first = objective.corrupt(example, stream("pure", seed), known)
    copies = {name: array.copy() for name, array in first.arrays.items()}
    again = objective.corrupt(example, stream("pure", seed), known)
    assert all(np.array_equal(text, old) for text, old in zip(example.texts, before, strict=True))
    assert copies.keys() == again.arrays.keys() == first.arrays.keys()
    for name, array in again.arrays.items():
        assert np.array_equal(array, copies[name])
        assert np.array_equal(array, first[name])
    assert np.array_equal(again.selected, first.selected)
    assert first.selected.shape == first.input_ids.shape
    assert set(copies) <= set(objective.fields)
    return first


def p_value(ours: Iterable, theirs: Iterable) -> float:
    """Of the hypothesis that two samples of outcomes have one distribution; rare outcomes count as one."""
    first, second = Counter(ours), Counter(theirs)
    common = [key for key in first | second if first[key] + second[key] >= 20]
    table = [[counts[key] for key in common] for counts in (first, second)]
    for row, counts in zip(table, (first, second), strict=True):
        row.append(counts.total() - sum(row))
    table = np.array(table)
    table = table[:, table.sum(0) > 0]
    return 1.0 if table.shape[1] == 1 else float(chi2_contingency(table).pvalue)


def same_distribution(objective, tokens: np.ndarray, explicit: Callable, outcome: Callable, times: int = 3000) -> None:
    """`outcome` of a corruption is distributed as the outcomes of `explicit`, which gets a generator of its own."""
    ours = [outcome(one) for one in corrupted(objective, tokens, times)]
    theirs = [explicit(stream("explicit", number)) for number in range(times)]
    assert p_value(ours, theirs) > 1e-3
