"""Whether the corpus affects which parts learn: trainings on several corpora, compared pair by pair."""

from collections.abc import Mapping
from itertools import combinations

import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema

from ._similarity import ALLOCATION_SIMILARITY, TrainedStack, profiles_of, similarity_rows

_CORPORA = tuple(
    Column(name=f"corpus_{end}", dtype="string", unit="", description=f"corpus of training {end}") for end in "ab"
)
ALLOCATION_CORPORA = TableSchema(
    name="allocation_corpora",
    version=2,
    description="Similarity of the distribution of two trainings' loss changes over layers × components, as in "
    "allocation_similarity, for pairs that differ in the corpus or in the objective and stack, but not in "
    "both.",
    made_by="it needs recordings on several corpora, and a study has one: run one study for each and compare "
    "their folders, infoflow dynamics RUN RUN ...",
    columns=(*_CORPORA, *ALLOCATION_SIMILARITY.columns),
)


def compare_corpora(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table `allocation_corpora` for recordings on several corpora.

    Pairs share a corpus, or an objective and stack. Pairs within a corpus show the effect of the objective (or the
    seed), pairs within an objective that of the corpus's size, domain or language pair.

    Args:
        groups: `allocation_groups` of each corpus's trainings, by the corpus's name.

    Raises:
        UserError: There are fewer than two corpora.
    """
    if len(groups) < 2:
        raise UserError(f"Comparing corpora takes recordings on at least two. Got {len(groups)}.")
    stacks = [(corpus, key, profile) for corpus, frame in groups.items() for key, profile in profiles_of(frame).items()]
    rows = []
    for (corpus, one, first), (other_corpus, other, second) in combinations(stacks, 2):
        same_corpus = corpus == other_corpus
        if (same_corpus and one.model != other.model) or (not same_corpus and _task(one) == _task(other)):
            keys = {"corpus_a": corpus, "corpus_b": other_corpus}
            rows += [keys | row for row in similarity_rows(one, first, other, second)]
    return ALLOCATION_CORPORA.conform(pd.DataFrame(rows, columns=pd.Index(ALLOCATION_CORPORA.column_names)))


def _task(key: TrainedStack) -> TrainedStack:
    """The key without the model's identity: two seeds have one task."""
    return key._replace(model="", seed=0)
