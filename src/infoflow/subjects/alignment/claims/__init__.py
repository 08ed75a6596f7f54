"""Claims about alignment, and how their tables are read."""

from infoflow.findings._registry import Derived

from ._objective_map import MAP_TABLES, objective_map

DERIVED = (Derived(schemas=MAP_TABLES, make=objective_map),)
