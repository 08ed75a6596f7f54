"""The tables of a run: typed, documented, versioned, and with their provenance inside."""

from ._estimate import estimate as estimate
from ._estimate import linear_replicates, scale_of
from ._estimate import ratio_estimate as ratio_estimate
from ._reader_tables import QUERY_LEAKAGE, RETRIEVAL_LEARNING, RETRIEVAL_SCORES
from ._run_folder import RunFolder as RunFolder
from ._run_folder import ShownTables
from ._run_folder import Tables as Tables
from ._samples import ColumnArrays, Estimate, replicates_of, seeds_of_pairs
from ._samples import Samples as Samples
from ._schema import SUFFIX, TABLES
from ._schema import Column as Column
from ._schema import TableSchema as TableSchema
from ._schema import estimate_columns as estimate_columns
from ._select import AmbiguousModels, first_architecture, models, select, with_keys
from ._study_tables import GIVEN_SCORES, LEARNING_CURVES, MATCH, RETRIEVAL_RUNS, TASK_SCORES, TRAINING_RUNS
from ._subject import BERT, END, KEYS, PAIR_KEYS, UNTRAINED, pair_values
from ._subject import Recipe as Recipe
from ._subject import Spec as Spec
from ._subject import Subject as Subject
from ._table import Table
from ._tables import StoredTable, read_table, write_table
