"""What the claims about tuned models read from tables: scores, change by layer, importance of heads, reset blocks."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from infoflow.findings._curves import spearman
from infoflow.findings._model_group import NAMES, Absent
from infoflow.findings._table import Reading, SeedRows, Table, check_layers, exact, together
from infoflow.foundation import stream
from infoflow.results import Spec

from ..measures import DOMAIN_LOSS, LAYER_SWAPS, TASK_SCORES, TUNING_CHANGE, TUNING_HEADS

# R: bootstrap replicates, K: layers or models, H: heads, T: tasks

FULL, FROZEN = "full", "frozen"
AS_IS, CONTINUED, SCRATCH = "as-is", "continued", "scratch"
IN_DOMAIN = (CONTINUED, SCRATCH)  # strategies with pretraining on the domain; claims use the first one that a run has
SHUFFLED = "shuffled-labels"
TEXTS = ("classification", "regression", "choice")  # shapes of tasks on whole texts
UNDERSTANDING = (*TEXTS, "tagging", "span")
_TEST: dict[str, Any] = {"part": "test", "main": True, "metric": ...}
_ORDERS = 400  # number of random orders of heads
_LEVEL = 0.95


def tuned(
    objective: Spec, method: str = FULL, strategy: str | tuple[str, ...] = AS_IS, control: str = "", **how: bool
) -> Table:
    """Scores of an objective's models on test examples, by each task's main metric."""
    way = {FULL: "tuned in full", FROZEN: "tuned with a frozen body"}[method]
    before = {AS_IS: "", CONTINUED: " after further pretraining on a domain", SCRATCH: " pretrained on a domain alone"}
    domain = " pretrained on a domain" if isinstance(strategy, tuple) else before[strategy]
    labels = " on shuffled labels" if control else ""
    return Table(
        TASK_SCORES.name,
        objective,
        needs=("task", "shape", "tuning_seed", "examples"),
        absent=f"no {{state}} {NAMES[objective]}{domain} was {way}{labels}",
        **how,
    ).where(method=method, strategy=strategy, control=control, **_TEST)


def means(*tables: Table, shapes: Sequence[str] = ()) -> Reading:
    """Mean score of each table with all labelled examples, over the common tasks (of `shapes`), (1 + R, K)."""
    return together(partial(_side_by_side, shapes=tuple(shapes)), *tables)


def gain_by_size(objective: Spec) -> Reading:
    """Gain from pretraining with the fewest and with the most labelled examples, mean over common tasks, (1 + R, 2)."""
    return together(_gains, tuned(objective), tuned(objective, trained=False))


def no_gain_by_size(objective: Spec) -> Reading:
    """`gain_by_size` between untrained models under different tuning seeds, where no gain is possible."""
    return tuned(objective, trained=False).reduce(_gains_of_halves)


def order_of_strategies(objective: Spec) -> Reading:
    """Rank correlation over strategies between mean task score and loss on domain text, (1 + R, 1)."""
    loss = Table(DOMAIN_LOSS.name, objective, needs=("strategy",)).where(text="domain")
    return together(_order, loss, _every_strategy(objective))


def order_of_halves(objective: Spec) -> Reading:
    """Rank correlation over strategies between the scores of two halves of the tuning seeds."""
    return _every_strategy(objective).reduce(_order_of_halves)


def _every_strategy(objective: Spec) -> Table:
    scores = Table(TASK_SCORES.name, objective, needs=("task", "tuning_seed", "examples", "strategy"))
    return scores.where(method=FULL, control="", **_TEST)


def change(objective: Spec, control: str = "") -> Reading:
    """How far tuning moved the space of layers 1..L, averaged over tasks, (1 + R, L)."""
    labels = " on shuffled labels" if control else ""
    table = Table(
        TUNING_CHANGE.name,
        objective,
        needs=("task", "layer", "examples"),
        absent=f"no {{state}} {NAMES[objective]} tuned in full{labels} was examined inside",
    )
    places = {"method": FULL, "strategy": AS_IS, "control": control, "measure": ("pwcca", "cka", "rsa")}
    return Reading((table.where(**places),), _change_by_layer, 1)


def regained(objective: Spec) -> Reading:
    """Pretraining loss regained by resetting upper blocks, minus that by resetting as many lower ones, (1 + R, 1).

    Each side counts only beyond what resetting the embeddings alone, or the final norm alone, regains. The mean is over
    tasks and numbers of blocks.
    """
    needs = ("task", "rewound", "blocks", "examples")
    absent = f"no {{state}} {NAMES[objective]} tuned in full has a pretraining loss after resetting layers"
    where = {"method": FULL, "strategy": AS_IS, "control": "", "quantity": "pretraining-loss"}
    return Table(LAYER_SWAPS.name, objective, needs=needs, absent=absent).where(**where).reduce(_lower_less_upper)


def agreement(objective: Spec) -> Reading:
    """Rank correlation of head importance between tasks, averaged over pairs of tasks, (1 + R, 1)."""
    return _heads(objective).reduce(_agreement)


def chance_agreement(objective: Spec) -> Reading:
    """The agreement that random head orders reach or exceed in 5 % of the draws."""
    return _heads(objective).reduce(_chance)


def most_agreement(objective: Spec) -> Reading:
    """The `agreement` to expect if all tasks needed the same heads, given the noise of test examples, (1 + R, 1)."""
    return _heads(objective).reduce(_ceiling)


def agreement_with_pretraining(objective: Spec) -> Reading:
    """Rank correlation between head importance for a task and for pretraining, averaged over tasks."""
    return _heads(objective, "cost_before").reduce(_with_pretraining)


def _heads(objective: Spec, *needs: str) -> Table:
    table = Table(
        TUNING_HEADS.name,
        objective,
        needs=("task", "layer", "head", "examples", *needs),
        absent=f"no {{state}} {NAMES[objective]} tuned in full was measured without single heads",
    )
    return table.where(method=FULL, strategy=AS_IS, control="", kind="self")


def _of_tasks(rows: SeedRows, shapes: Sequence[str] = ()) -> dict[str, SeedRows]:
    """The rows of each task, tuned on the largest number of examples."""
    found = {}
    for task, own in rows.groups("task"):
        if not shapes or str(own.frame["shape"].iloc[0]) in shapes:
            examples = own.column("examples")
            found[str(task)] = own.at(examples == examples.max())
    return found


def _mean(rows: SeedRows) -> np.ndarray:
    """Mean over tuning seeds, (1 + R,)."""
    return rows.numbers.mean(axis=1)


def _cut(found: Sequence[np.ndarray]) -> list[np.ndarray]:
    common = min(map(len, found))
    return [each[:common] for each in found]


def _side_by_side(*parts: SeedRows, shapes: tuple[str, ...]) -> np.ndarray | None:
    found = [_of_tasks(rows, shapes) for rows in parts]
    shared = sorted(set.intersection(*(set(own) for own in found)))
    if not shared:
        kinds = f" of the shapes {', '.join(shapes)}" if shapes else ""
        raise Absent(f"the compared models were tuned for no common task{kinds}")
    columns = [np.mean(_cut([_mean(own[task]) for task in shared]), axis=0) for own in found]
    return np.stack(_cut(columns), axis=1)


def _by_size(rows: SeedRows) -> dict[tuple[str, int], np.ndarray]:
    return {
        (str(task), int(size)): _mean(own)
        for task, of_task in rows.groups("task")
        for size, own in of_task.groups("examples")
    }


def _gains(trained: SeedRows, untrained: SeedRows) -> np.ndarray:
    with_it, without = _by_size(trained), _by_size(untrained)
    ends = []
    for task in sorted({task for task, _ in with_it}):
        sizes = sorted(size for name, size in with_it if name == task and (task, size) in without)
        if len(sizes) > 1:
            gaps = [_gap(with_it[task, size], without[task, size]) for size in (sizes[0], sizes[-1])]
            ends.append(np.stack(_cut(gaps), axis=1))
    if not ends:
        raise Absent(
            "for no task were both a pretrained and an untrained model tuned on few and on many labelled examples "
            "(examples in [[tune]])"
        )
    return np.mean(_cut(ends), axis=0)


def _halves(rows: SeedRows) -> tuple[SeedRows, SeedRows]:
    seeds = sorted(set(rows.column("tuning_seed").astype(int).tolist()))
    if len(seeds) < 2:
        raise Absent("there is one seed of tuning, and none to compare it with")
    first = np.isin(rows.column("tuning_seed"), seeds[::2])
    return rows.at(first), rows.at(~first)


def _gains_of_halves(rows: SeedRows) -> np.ndarray:
    return _gains(*_halves(rows))


def _of_strategies(rows: SeedRows) -> dict[str, np.ndarray]:
    """The score of each strategy over the tasks common to all."""
    found = {str(name): _of_tasks(own) for name, own in rows.groups("strategy")}
    shared = sorted(set.intersection(*(set(own) for own in found.values())))
    if not shared:
        raise Absent("general models and models of the domain were tuned for no common task")
    return {name: np.mean(_cut([_mean(own[task]) for task in shared]), axis=0) for name, own in found.items()}


def _correlation(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> np.ndarray:
    shared = sorted(set(first) & set(second))
    if len(shared) < 3:
        raise Absent(
            f"an order needs three strategies (as-is, continued, scratch), but there are {len(shared)}: "
            f"{', '.join(shared)}"
        )
    sides = [np.stack(_cut([part[name] for name in shared]), axis=1) for part in (first, second)]
    return spearman(*_cut(sides))


def _order(losses: SeedRows, scores: SeedRows) -> np.ndarray:
    return _correlation({str(name): -_mean(own) for name, own in losses.groups("strategy")}, _of_strategies(scores))


def _order_of_halves(scores: SeedRows) -> np.ndarray:
    first, second = _halves(scores)
    return _correlation(_of_strategies(first), _of_strategies(second))


def _change_by_layer(rows: SeedRows) -> np.ndarray:
    curves = []
    for own in _of_tasks(rows).values():
        above = own.at(own.column("layer") > 0)
        order = np.argsort(above.column("layer"))
        check_layers(tuple(above.column("layer")[order].astype(int).tolist()), 1, TUNING_CHANGE.name)
        curves.append(above.numbers[:, order])
    return np.mean(_cut(curves), axis=0)


def _gap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    one, other = _cut([first, second])
    return one - other


def _lower_less_upper(rows: SeedRows) -> np.ndarray:
    found = []
    for own in _of_tasks(rows).values():
        by_side = {
            str(side): {int(num): _mean(one) for num, one in of_side.groups("blocks")}
            for side, of_side in own.groups("rewound")
        }
        lower, upper, none = (by_side.get(side, {}) for side in ("lower", "upper", "none"))
        shared = sorted((set(lower) & set(upper)) - {0})
        if not shared:
            raise Absent("layer_swaps has no equal numbers of lower and upper blocks reset")
        if 0 not in lower or 0 not in none:
            raise Absent("layer_swaps does not say what the embeddings alone regain: measure the models again")
        outside = (lower[0], upper.get(0, none[0]))
        differences = [_gap(lower[num], upper[num]) - _gap(*outside) for num in shared]
        found.append(np.mean(_cut(differences), axis=0))
    return np.mean(_cut(found), axis=0)[:, None]


def _by_head(rows: SeedRows) -> list[SeedRows]:
    """The rows of each task, with heads in the same order."""
    return [SeedRows(own.frame.sort_values(["layer", "head"]), own.number) for own in _of_tasks(rows).values()]


def _worth(rows: SeedRows) -> list[np.ndarray]:
    """Importance of each head for each task, (1 + R, H), with heads in the same order."""
    found = [own.numbers for own in _by_head(rows)]
    if len(found) < 2:
        raise Absent("heads were removed for only one task, and agreement needs two")
    if len({each.shape[1] for each in found}) > 1:
        raise Absent("tuning_heads lacks heads of some tasks")
    return _cut(found)


def _agreement(rows: SeedRows) -> np.ndarray:
    return np.mean([spearman(one, other) for one, other in combinations(_worth(rows), 2)], axis=0)


def _chance(rows: SeedRows) -> np.ndarray:
    worth, orders = [each[:1] for each in _worth(rows)], stream("adaptation", "orders of heads")
    drawn = [orders.permuted(np.tile(each, (_ORDERS, 1)), axis=1) for each in worth]
    reached = np.mean([spearman(one, other) for one, other in combinations(drawn, 2)], axis=0)
    return exact([np.quantile(reached, _LEVEL)])


def _ceiling(rows: SeedRows) -> np.ndarray:
    known = [_reliability(worth) for worth in _worth(rows)]
    return exact([np.mean([np.sqrt(one * other) for one, other in combinations(known, 2)])])


def _reliability(worth: np.ndarray) -> float:
    """Reliability of the head order (1 + R, H): the share T / (T + N) of its variance that is not sampling noise N.

    Head orders from two bootstrap samples share the variance T + N, and each has further noise N of its own, so their
    correlation is c = (T + N) / (T + 2 N), and the share is 2 − 1 / c.
    """
    half = len(worth) // 2
    alike = float(np.nanmean(spearman(worth[1 : half + 1], worth[-half:]))) if half else 1.0
    return max(2 - 1 / alike, 0.0) if alike > 0 else 0.0


def _with_pretraining(rows: SeedRows) -> np.ndarray:
    found = [spearman(own.numbers, own.column("cost_before")[None]) for own in _by_head(rows)]
    if not any(np.isfinite(each).any() for each in found):
        raise Absent("tuning_heads lacks the importance of heads for pretraining")
    return np.mean(_cut(found), axis=0)
