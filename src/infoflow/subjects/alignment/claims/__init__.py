"""Claims about alignment, and how their tables are read."""

from ._objective_map import MAP_TABLES, OBJECTIVE_DISTANCES, OBJECTIVE_FAMILIES, OBJECTIVE_MAP, objective_map
