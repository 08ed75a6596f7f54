"""Whether the corpus matters to who does the learning: trainings on several corpora, compared pair by pair."""

from collections.abc import Mapping

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema

from ._similarity import ALLOCATION_SIMILARITY, profiles_of, similarity_rows

_CORPORA = tuple(
    Column(name=f"corpus_{end}", dtype="string", unit="", description=f"corpus of training {end}") for end in "ab"
)
ALLOCATION_CORPORA = TableSchema(
    name="allocation_corpora",
    version=1,
    description="How alike the loss changes of two trainings are spread over layers × components, as in "
    "allocation_similarity, for pairs that differ in the corpus or in the objective and stack, not in both.",
    columns=(*_CORPORA, *ALLOCATION_SIMILARITY.columns),
)


def compare_corpora(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `allocation_corpora` of recordings on several corpora.

    Pairs are of one corpus, or of one objective and stack. Those of one corpus say what the objective (or the seed)
    changes, those of one objective what the size, the domain or the language pair of the corpus changes.

    Args:
        groups: `allocation_groups` of each corpus's trainings, by the corpus's name.

    Raises:
        UserError: There are fewer than two corpora.
    """
    if len(groups) < 2:
        raise UserError(f"Comparing corpora takes recordings on at least two. Got {len(groups)}.")
    stacks = [
        ((corpus, *key), profile) for corpus, frame in groups.items() for key, profile in profiles_of(frame).items()
    ]
    rows = []
    for number, ((corpus, *one), first) in enumerate(stacks):
        for (other_corpus, *other), second in stacks[number + 1 :]:
            same_corpus, same_task = corpus == other_corpus, (one[1], one[3]) == (other[1], other[3])
            if (same_corpus and one[0] != other[0]) or (not same_corpus and same_task):
                keys = {"corpus_a": corpus, "corpus_b": other_corpus}
                rows += [keys | row for row in similarity_rows(tuple(one), first, tuple(other), second)]
    return ALLOCATION_CORPORA.conform(pd.DataFrame(rows, columns=pd.Index(ALLOCATION_CORPORA.column_names)))
