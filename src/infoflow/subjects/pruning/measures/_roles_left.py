"""What a pruned model keeps and saves: roles of heads, parameters, memory, time."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PassOptions, measure
from infoflow.foundation import UserError
from infoflow.heads import HeadSet, PositionalScores, RareTokenScores, RelationScores, ablate, head_roles
from infoflow.models import Model, model_inputs
from infoflow.results import Column, TableSchema

# Which roles of heads remain at each point of a pruning sweep.


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


# Savings from removal: parameters, memory, time.


_COLUMNS = ["model", "heads", "parameters", "megabytes", "batch", "milliseconds", "speed-up"]


def compare_speed(
    models: Sequence[Model], *, batches: Sequence[int] = (1, 32), tokens: int = 32, rounds: int = 10
) -> pd.DataFrame:
    """Size and measured speed of models, compared with the first one.

    Each round runs every model once on the same random token ids, so that load on the machine affects all equally.

    Args:
        models: A model and its pruned versions.
        batches: Sentences per forward pass.
        tokens: Tokens per sentence.
        rounds: Forward passes of each model for the median; one more warms up.

    Returns:
        model, heads, parameters, megabytes (of the weights), batch, milliseconds (median of a forward pass), speed-up
        (the first model's median over this one's).

    Raises:
        UserError: There is no model, or the models support fewer tokens.
    """
    if not models or rounds < 1 or tokens < 1:
        raise UserError("compare_speed needs at least one model, one round and one token.")
    rows = []
    for batch in batches:
        inputs = [_inputs(model, batch, tokens) for model in models]
        times: list[list[float]] = []
        for _ in range(rounds + 1):
            times.append([_seconds(model, given) for model, given in zip(models, inputs, strict=True)])
        medians = [statistics.median(own) for own in zip(*times[1:], strict=True)]
        for model, median in zip(models, medians, strict=True):
            rows.append([*_size(model), batch, 1000 * median, medians[0] / median])
    return pd.DataFrame(rows, columns=_COLUMNS)


def _size(model: Model) -> tuple[str, int, int, float]:
    parameters = list(model.module.parameters())
    heads = sum(one.num_heads for one in model.anatomy.attentions())
    weight_bytes = sum(p.numel() * p.element_size() for p in parameters)
    return model.name, heads, sum(p.numel() for p in parameters), weight_bytes / 1e6


def _inputs(model: Model, batch: int, tokens: int) -> dict:
    size = model.module.get_input_embeddings().num_embeddings  # type: ignore[union-attr]
    ids = torch.randint(min(5, size - 1), size, (batch, tokens), generator=torch.Generator().manual_seed(0))
    target = ids if len(model.anatomy.stacks) > 1 else None
    return model_inputs(model, ids, decoder_input_ids=None if target is None else target % _target_size(model))


def _target_size(model: Model) -> int:
    output = model.module.get_output_embeddings()
    return int(output.weight.shape[0]) if output is not None else 1


def _seconds(model: Model, inputs: dict) -> float:
    with torch.inference_mode():
        _wait(model)
        start = time.perf_counter()
        model.module(**inputs)
        _wait(model)
    return time.perf_counter() - start


def _wait(model: Model) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
