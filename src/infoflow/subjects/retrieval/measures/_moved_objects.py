"""A control for statements about objects of facts: the objects are permuted within each relation."""

import numpy as np

from infoflow.foundation import stream

from ._inputs import FactInputs


def moved_objects(inputs: FactInputs, seed: int = 0) -> np.ndarray:
    """Another fact's object for each row, int64 (row,): one permutation per relation, the same for all questions.

    Only the relation still carries information about the object.
    """
    relations = np.array([fact.relation for fact in inputs.facts])
    numbers = np.array([fact.number for fact in inputs.facts])
    moved = np.empty(len(inputs), dtype=np.int64)
    for relation in np.unique(relations):
        rows = np.flatnonzero(relations == relation)
        distinct, first, fact = np.unique(numbers[rows], return_index=True, return_inverse=True)
        order = stream("moved-objects", seed, int(relation)).permutation(len(distinct))
        moved[rows] = inputs.answers[rows][first][order][fact]
    return moved
