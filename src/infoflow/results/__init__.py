"""The tables of a run: typed, documented, versioned, and with their provenance inside."""

from ._run_folder import RunFolder as RunFolder
from ._run_folder import ShownTables
from ._run_folder import Tables as Tables
from ._samples import Estimate, replicates_of, seeds_of_pairs
from ._samples import Samples as Samples
from ._schema import SUFFIX, TABLES, linear_replicates, scale_of
from ._schema import Column as Column
from ._schema import TableSchema as TableSchema
from ._schema import estimate as estimate
from ._schema import estimate_columns as estimate_columns
from ._schema import ratio_estimate as ratio_estimate
from ._select import (
    GIVEN_SCORES,
    LEARNING_CURVES,
    MATCH,
    OBJECTIVE_EXAMPLES,
    RETRIEVAL_RUNS,
    TASK_SCORES,
    TRAINING_RUNS,
    AmbiguousModels,
    first_architecture,
    models,
    select,
    with_keys,
)
from ._shared_tables import PROBE_SCORES, QUERY_LEAKAGE, RETRIEVAL_LEARNING, RETRIEVAL_SCORES
from ._subject import BERT, END, KEYS, PAIR_KEYS, UNTRAINED, Recipe, pair_values
from ._subject import Spec as Spec
from ._subject import Subject as Subject
from ._tables import StoredTable, Table, read_table, write_table
