"""The order of stages and their priorities."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stages import Toy

from infoflow.engine._stage import in_order, path_lengths


@st.composite
def graphs(draw) -> list[Toy]:
    """Stages in any order; each may need others, in no circle, and some that are not there."""
    count = draw(st.integers(0, 12))
    rank = draw(st.permutations(range(count)))
    stages = []
    for index in range(count):
        earlier = [str(other) for other in range(count) if rank[other] < rank[index]] + ["elsewhere"]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4))
        cost = draw(st.integers(0, 9))
        stages.append(Toy(folder="", key=str(index), needs=tuple(needs), cost=float(cost)))
    return stages


@settings(deadline=None)
@given(graphs())
def test_each_stage_stands_after_what_it_needs(graph):
    ordered = in_order(graph)
    assert sorted(ordered, key=lambda stage: int(stage.key)) == graph
    place = {stage.key: index for index, stage in enumerate(ordered)}
    assert all(place.get(need, -1) < place[stage.key] for stage in graph for need in stage.needs)


def test_stages_that_need_nothing_keep_their_order():
    graph = [Toy(folder="", key=key) for key in "dbac"]
    assert in_order(graph) == graph


def test_a_circle_is_a_bug():
    with pytest.raises(AssertionError, match="needs itself"):
        in_order([Toy(folder="", key="a", needs=("b",)), Toy(folder="", key="b", needs=("a",))])


def _longest(stage: Toy, graph: list[Toy]) -> float:
    """By the definition: its cost, and the longest chain among those that need it."""
    after = [_longest(other, graph) for other in graph if stage.key in other.needs]
    return stage.cost + max(after, default=0.0)


@settings(deadline=None)
@given(graphs())
def test_a_path_is_as_long_as_its_longest_chain(graph):
    assert path_lengths(graph) == {stage.key: _longest(stage, graph) for stage in graph}
