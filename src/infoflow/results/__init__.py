"""The tables of a run: typed, documented, versioned, with their provenance inside."""

from ._estimate import estimate as estimate
from ._estimate import linear_replicates as linear_replicates
from ._estimate import ratio_estimate as ratio_estimate
from ._run_folder import RunFolder as RunFolder
from ._run_folder import Tables as Tables
from ._schema import Column as Column
from ._schema import TableSchema as TableSchema
from ._schema import estimate_columns as estimate_columns
from ._tables import StoredTable as StoredTable
from ._tables import read_table as read_table
from ._tables import write_table as write_table
