"""Which roles of heads remain at each point of a pruning sweep."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PassOptions, measure
from infoflow.heads import (
    HeadSet,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    ablate,
    head_roles,
)
from infoflow.models import Model
from infoflow.results import Column, TableSchema

_HEAD = ["stack", "kind", "layer", "head"]
_NAMES = {"value": "score", "holds": "present"}

PRUNED_ROLES = TableSchema(
    name="pruned_roles",
    version=2,
    description="Roles of heads, measured again at each step of a pruning sweep with the same thresholds on the same "
    "sentences. A removed head still attends, so it has scores, but its output is not used.",
    made_by="a plan that says [pruning] on = true makes it",
    columns=(
        Column(name="method", dtype="string", unit="", description="how heads were chosen, as in the table pruning"),
        Column(name="scope", dtype="string", unit="", description="heads that could go, as in the table pruning"),
        Column(name="draw", dtype="int64", unit="", description="as in the table pruning"),
        Column(
            name="point",
            dtype="int64",
            unit="",
            description="as in the table pruning; -1 is the converged model before any head went",
        ),
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="kind", dtype="string", unit="", description="self or cross"),
        Column(name="layer", dtype="int64", unit="", description="block, from 0"),
        Column(name="head", dtype="int64", unit="", description="head, from 0"),
        Column(name="role", dtype="string", unit="", description="positional, syntactic or rarest token"),
        Column(name="score", dtype="float64", unit="share", description="what the role is defined by"),
        Column(name="baseline", dtype="float64", unit="share", description="the score's control, see its own table"),
        Column(name="low", dtype="float64", unit="share", description="lower end of the score's 95% interval"),
        Column(name="high", dtype="float64", unit="share", description="upper end of the score's 95% interval"),
        Column(
            name="present",
            dtype="bool",
            unit="",
            description="whether the head has the role at this point: chosen, and above the limit on the other half of "
            "the sentences, see `head_roles`",
        ),
        Column(name="chosen", dtype="bool", unit="", description="whether it reaches the limit on the first half"),
        Column(name="alive", dtype="bool", unit="", description="whether the head is left at this point"),
    ),
)


def role_measures() -> list[AbstractMeasure]:
    """Positional, syntactic (if the corpus has trees) and rare-token scores."""
    return [PositionalScores(offsets=(-2, -1, 1, 2)), RelationScores(), RareTokenScores()]


def roles_left(
    model: Model,
    corpus: Corpus,
    removed: HeadSet,
    keys: Mapping[str, Any],
    *,
    options: PassOptions | None = None,
    ranks_from: Corpus | None = None,
) -> pd.DataFrame:
    """The table `pruned_roles` for a model without some of its heads.

    Args:
        model: The model, with learned gates attached or not.
        corpus: Sentences for measuring roles; syntactic ones need trees.
        removed: Heads to ablate.
        keys: `method`, `scope`, `draw` and `point`.
        options: How the corpus is run.
        ranks_from: Source of token frequencies, see `measure`.
    """
    with ablate(model, sorted(removed)):
        tables = measure(model, corpus, role_measures(), options, ranks_from)
    roles = head_roles(tables).rename(columns=_NAMES)
    heads = roles[_HEAD].itertuples(index=False, name=None)
    alive = [(str(stack), str(kind), int(layer), int(head)) not in removed for stack, kind, layer, head in heads]
    return PRUNED_ROLES.conform(roles.assign(**keys, alive=alive)[PRUNED_ROLES.column_names])
