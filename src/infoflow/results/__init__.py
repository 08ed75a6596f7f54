"""The tables of a run: typed, documented, versioned, with their provenance inside."""

from ._estimate import estimate as estimate
from ._estimate import linear_replicates as linear_replicates
from ._estimate import ratio_estimate as ratio_estimate
from ._run_folder import RunFolder as RunFolder
from ._run_folder import Tables as Tables
from ._schema import Column as Column
from ._schema import TableSchema as TableSchema
from ._schema import estimate_columns as estimate_columns
from ._select import AmbiguousModels as AmbiguousModels
from ._select import first_architecture as first_architecture
from ._select import models as models
from ._select import select as select
from ._select import with_keys as with_keys
from ._subject import BERT as BERT
from ._subject import END as END
from ._subject import KEYS as KEYS
from ._subject import PAIR_KEYS as PAIR_KEYS
from ._subject import UNTRAINED as UNTRAINED
from ._subject import Recipe as Recipe
from ._subject import Spec as Spec
from ._subject import Subject as Subject
from ._subject import pair_values as pair_values
from ._tables import StoredTable as StoredTable
from ._tables import read_table as read_table
from ._tables import write_table as write_table
