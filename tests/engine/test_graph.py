"""The order in which stages run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stages import Toy

from infoflow.engine import InTurn


class Idle(Toy):
    """Does nothing and writes nothing."""

    def run(self) -> dict:
        return {}


def in_order(graph: list[Idle]) -> list[Idle]:
    with InTurn() as engine:
        ran = engine.run(graph, lambda event: None)
    stages = {stage.key: stage for stage in graph}
    return [stages[key] for key in ran]


@st.composite
def graphs(draw) -> list[Idle]:
    """Stages in any order; each may need others, in no circle, and some that are not there."""
    count = draw(st.integers(0, 12))
    rank = draw(st.permutations(range(count)))
    stages = []
    for index in range(count):
        earlier = [str(other) for other in range(count) if rank[other] < rank[index]] + ["elsewhere"]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4))
        cost = draw(st.integers(0, 9))
        stages.append(Idle(folder="", key=str(index), needs=tuple(needs), cost=float(cost)))
    return stages


@settings(deadline=None)
@given(graphs())
def test_each_stage_stands_after_what_it_needs(graph):
    ordered = in_order(graph)
    assert sorted(ordered, key=lambda stage: int(stage.key)) == graph
    place = {stage.key: index for index, stage in enumerate(ordered)}
    assert all(place.get(need, -1) < place[stage.key] for stage in graph for need in stage.needs)


def test_stages_that_need_nothing_keep_their_order():
    graph = [Idle(folder="", key=key) for key in "dbac"]
    assert in_order(graph) == graph


def test_a_circle_is_a_bug():
    with pytest.raises(AssertionError, match="needs itself"):
        in_order([Idle(folder="", key="a", needs=("b",)), Idle(folder="", key="b", needs=("a",))])
