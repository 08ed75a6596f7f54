"""The importance of parts for the states that they sum to, over a corpus, and the route of one prediction."""

from ._importance import ROUTE_IMPORTANCE
from ._importance import RouteImportance as RouteImportance
from ._route import Route as Route
from ._route import find_route as find_route
from ._shares import part_importance as part_importance

MEASURES = (RouteImportance,)
