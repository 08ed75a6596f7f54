"""The batch of each update as the set for its loss change."""

import dataclasses

from infoflow.foundation import UserError
from infoflow.objectives import AbstractObjective
from infoflow.training import Step

from ._evaluation_set import EvaluationSet
from ._sharing import rank


def batch_set(objective: AbstractObjective) -> EvaluationSet:
    r"""Represents the batch $B_t$ of each update (`batch` mode): has no examples of its own.

    $$ A_{t,i} = \Delta_{t,i} \int_0^1 \partial_i L_{B_t}(\theta_t + s\Delta_t)\,ds $$

    It measures the effect of an update on the loss of the sentences and noise that it was computed from, without
    dropout. That loss falls more than the loss of other sentences, since the update follows its gradient, noise
    included; and as every update has different sentences, sums over updates are not the change of a single loss. Use a
    fixed set to measure what was learned, and this one to see what updates aim at. End points cannot be shared: each
    rule costs one more gradient. For one process and single updates (`RecordConfig(every=1)`). Examples and tokens in
    `allocation_reliability` are those of the last batch.

    Source: [@lan2019lca] use the loss on the whole training set; this mode is a cheap approximation.
    """
    counts = dict.fromkeys(objective.term_weights, 0)
    return EvaluationSet(
        name="batch", objective=objective, parts=((),), counts=(counts,), sentences=0, tokens=0, moving=True
    )


def of_step(one: EvaluationSet, step: Step) -> EvaluationSet:
    """The batch set of an update.

    Raises:
        UserError: Several processes train: none of them has the whole batch.
    """
    if rank()[1] > 1:
        raise UserError(
            f"The set of each update's batch is for one process. Got {rank()[1]}: give the recorder a fixed set."
        )
    counts = dict.fromkeys(one.objective.term_weights, 0)
    for batch in step.batches:
        for name, count in one.objective.counts(batch).items():
            counts[name] += count
    return dataclasses.replace(
        one,
        parts=(tuple(step.batches),),
        counts=(counts,),
        sentences=sum(len(batch.input_ids) for batch in step.batches),
        tokens=sum(batch.source_tokens for batch in step.batches),
    )
