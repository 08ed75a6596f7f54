"""Rows and hooks for the training of readers."""

from ._index_refresh import IndexRefresh as IndexRefresh
from ._query_rows import PassageRows as PassageRows
from ._query_rows import QueryRows, query_rows, question_rows
from ._query_rows import fact_query_rows as fact_query_rows
