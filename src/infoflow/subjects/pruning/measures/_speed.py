"""Savings from removal: parameters, memory, time."""

import statistics
import time
from collections.abc import Sequence

import pandas as pd
import torch

from infoflow.foundation import UserError
from infoflow.models import Model, model_inputs

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
