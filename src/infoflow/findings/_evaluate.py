"""Judges every claim on the tables of a run, for models of a study and for pretrained or external models."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pandas as pd

from infoflow.foundation import Interval
from infoflow.objectives import OBJECTIVES
from infoflow.results import END, GIVEN_SCORES, Samples, Spec

from ._control import ControlOutcome, strongest, try_control
from ._finding import UNTESTABLE, Finding, Outcome, Verdict, judge_all, several, short
from ._interval import resampled_curves
from ._model_group import NAMES, Absent, ModelGroup, Tables, group_of, model_groups
from ._no_verdict import seeds_text, seeds_to_count, seeds_to_decide, shortfall, too_few, unsettled
from ._registry import FINDINGS
from ._schema import FINDINGS_TABLE
from ._table import gather, of_seeds
from ._two_estimates import combined

# Pretrained or external models, on which claims about a single model are judged too.
#
# The table `given_scores` lists these models, with their loss on the sentences that were read. A claim about a masked
# LM, or about all models, is tested on each listed model, and the note of the claim's row names that model.

TABLE = GIVEN_SCORES.name
_LOSS = OBJECTIVES["causal-lm"].metrics[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternalModel:
    name: str
    task: str  # what its head predicts; "encoder": no head
    architecture: str
    loss: float  # nats per token; NaN: no prediction head
    high: float  # upper end of its interval
    unigram: float  # the unigram baseline

    def why_not(self) -> str | None:
        """Why the model counts as not having learned its task; None if it has learned it, or has no head to test."""
        if np.isnan(self.loss) or _LOSS.learned(np.nan, self.high, self.unigram):
            return None
        return (
            f"the model {self.name} has not learned its task: {short(self.loss)} nats per token (up to "
            f"{short(self.high)}), {_LOSS.needed(self.unigram)}"
        )

    def notes(self, finding: Finding) -> list[str]:
        """Facts about the model that a reader of the verdict should know."""
        about = finding.learned[0]
        found = [f"judged on {self.name}, an external model"]
        if self.task != about.name:
            found.append(f"the claim is about a {NAMES[about]}; {self.name} is {_KINDS.get(self.task, self.task)}")
        if np.isnan(self.loss):
            found.append(f"{self.name} has no output head, so whether it has learned its task was not tested")
        return found


_KINDS = {"encoder": "an encoder without a head", "causal-lm": "a causal LM", "masked-lm": "a masked LM"}


def external_models(tables: Tables) -> list[ExternalModel]:
    """The pretrained or external models, in the order of the table; an empty list for a study."""
    frame = tables.get(TABLE)
    needed = {"model", "objective", "architecture", "trained", "value", "high", "baseline"}
    if frame is None or not needed <= set(frame.columns):
        return []
    rows = frame[frame["trained"].astype(bool)].drop_duplicates("model").to_dict("records")
    return [
        ExternalModel(
            name=str(row["model"]),
            task=str(row["objective"]),
            architecture=str(row["architecture"]),
            loss=float(row["value"]),
            high=float(row["high"]),
            unigram=float(row["baseline"]),
        )
        for row in rows
    ]


def group_of_external(tables: Tables, names: Iterable[str], model: ExternalModel, objective: Spec) -> ModelGroup:
    """The rows of the named tables about an external model and its control, with `objective` as their objective."""
    kept: dict[str, pd.DataFrame] = {}
    for name in names:
        frame = tables.get(name)
        if frame is not None and {"model", "objective"} <= set(frame.columns):
            own = frame[frame["model"] == model.name]
            if len(own):
                kept[name] = own.assign(objective=objective.name, variant=objective.variant)
    return group_of(kept, model.architecture, END)


def evaluate(tables: Mapping[str, pd.DataFrame], findings: Iterable[Finding] | None = None) -> pd.DataFrame:
    """The findings table: one row per claim, architecture and update, with effect, interval, control and verdict.

    Only `tables` is read. A claim whose tables, objectives or seeds are absent gets the verdict "not testable here"
    with the reason, and its numbers if there are any (of one seed, or of a model that has not learned its task).

    Args:
        tables: Tables of a run by name, for example `RunFolder(path).tables`; any may be absent.
        findings: The claims to test; by default all of `FINDINGS`.
    """
    rows = [one.row for one in judged(tables, FINDINGS.values() if findings is None else findings)]
    return FINDINGS_TABLE.conform(pd.DataFrame(rows, columns=pd.Index(FINDINGS_TABLE.column_names)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Judged:
    """A claim on one group of models: its row of the table of findings, and the outcomes of its conditions."""

    row: dict[str, object]
    outcomes: list[Outcome] = field(default_factory=list)  # empty if nothing was measured
    deciding: int = 0  # index of the deciding condition


def judged(tables: Mapping[str, pd.DataFrame], findings: Iterable[Finding]) -> Iterator[Judged]:
    """The rows of `evaluate` with all their conditions."""
    chosen = list(findings)
    read = dict.fromkeys(table for finding in chosen for table in finding.tables)
    external = external_models(tables)
    group = cache(partial(group_of_external, tables, tuple(read)))  # cached, since all claims share these few models
    for index, models in enumerate(model_groups(tables, read)):
        why_not = cache(partial(shortfall, models))
        for finding in chosen:
            if not external or finding.given is None:
                yield _judged(finding, models, why_not)
            elif index == 0:
                yield from (_judged_on(finding, one, group) for one in external)


_NO_INTERVAL = "these numbers come from one seed, without a bootstrap over sentences, so they have no interval"

_WhyNot = Callable[[Spec, int], str | None]
"""Why the model of an objective and a seed counts as not having learned its task, or None."""


def _judged_on(finding: Finding, model: ExternalModel, group: Callable[[ExternalModel, Spec], ModelGroup]) -> Judged:
    assert finding.given is not None
    judged = finding.given.finding or finding
    models = group(model, judged.learned[0])
    if finding.given.tasks and model.task not in finding.given.tasks:
        kinds = " or ".join(finding.given.tasks)
        reason = f"The claim is about models of the kind {kinds}; {model.name} is of the kind {model.task}."
        found = Judged(row={**_blank(judged, models), "verdict": UNTESTABLE, "reason": reason})
    else:
        found = _judged(judged, models, lambda objective, seed: model.why_not())
    notes = [*model.notes(judged), *str(found.row["note"]).splitlines()]
    row = {**found.row, "model": model.name, "note": "\n".join(notes)}
    return Judged(row=row, outcomes=found.outcomes, deciding=found.deciding)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seeds:
    """The seeds that a claim is tested on, and the reasons why it gets no verdict."""

    used: list[int]
    obstacles: list[str]
    left_out: list[str]  # excluded seeds, with the reason


def _blank(finding: Finding, models: ModelGroup) -> dict[str, object]:
    return {
        "id": finding.id,
        "claim": finding.claim,
        "model": "",
        "architecture": models.architecture,
        "update": models.update,
        "published": finding.published,
        "source": str(finding.source),
        "source_read": finding.source_read,
        "tables": ", ".join(finding.tables),
        **dict.fromkeys(("effect", "low", "high", "threshold", "control"), float("nan")),
        **dict.fromkeys(("covers", "unit", "control_name", "note"), ""),
        "seeds": 0,
        "seeds_needed": 0,
        "effects": [],
    }


def _judged(finding: Finding, models: ModelGroup, why_not: _WhyNot) -> Judged:
    """Judge the claim on a group of models, by both of its estimates if it has two."""
    own = _judged_alone(finding, models, why_not)
    if finding.another is None:
        return own
    other = _judged_alone(finding.another.finding, models, why_not)
    by_other, changes = combined(finding.another, own.row, other.row, models)
    chosen = other if by_other else own
    return Judged(row=chosen.row | changes, outcomes=chosen.outcomes, deciding=chosen.deciding)


def _judged_alone(finding: Finding, models: ModelGroup, why_not: _WhyNot) -> Judged:
    row = _blank(finding, models)
    try:
        found = gather(finding.reads, models)
        seeds = _seeds(finding, found, why_not)
        found = of_seeds(found, set(seeds.used))
        if min(one.num_replicates for one in found.values()) < 2:
            raise Absent("the tables have no bootstrap replicates, so there is no interval")
    except Absent as absent:
        return Judged(row={**row, "verdict": UNTESTABLE, "reason": _sentence(str(absent))})
    tested = _tested(finding, models, found, seeds)
    return Judged(row=row | tested.row, outcomes=tested.outcomes, deciding=tested.deciding)


def _seeds(finding: Finding, found: dict[str, Samples], why_not: _WhyNot) -> _Seeds:
    """Select the seeds whose models have all learned their tasks or, if these are too few, all seeds with the reasons.

    The models of at least three seeds (of all seeds if there are fewer) must have learned, so that no verdict depends
    on a single lucky seed.
    """
    present = sorted(set.intersection(*(one.seeds for one in found.values())))
    reasons = {seed: [r for o in finding.learned if (r := why_not(o, seed))] for seed in present}
    learned = [seed for seed in present if not reasons[seed]]
    failures = [reason for seed in present for reason in reasons[seed]]
    if len(learned) >= max(finding.minimum_seeds, min(3, len(present))):
        return _Seeds(used=learned, obstacles=[], left_out=failures)
    were = "was 1" if len(present) == 1 else f"were {len(present)}"
    few = f"it needs {several(finding.minimum_seeds)} of each objective, and there {were}"
    obstacles = [few] if len(present) < finding.minimum_seeds else []
    return _Seeds(used=present, obstacles=[*obstacles, *failures], left_out=[])


def _tested(finding: Finding, models: ModelGroup, found: dict[str, Samples], seeds: _Seeds) -> Judged:
    curves, rows = resampled_curves(found, seeds.used)
    outcomes = judge_all(finding.conditions(curves), rows)
    index = min(range(len(outcomes)), key=lambda i: outcomes[i].strength)
    deciding = outcomes[index]
    controls = [try_control(c, finding, models, set(seeds.used), deciding, index) for c in finding.controls]
    shown = strongest(controls, deciding.condition.side)
    sentences = any(one.sampled for one in found.values())
    covers = " and ".join(["seeds"] * deciding.covers_seeds + ["sentences"] * sentences)  # "" without an interval
    alone = [] if covers or len(seeds.used) > 1 else [_NO_INTERVAL]
    estimates = {name: rows[:1] for name, rows in curves.items()}
    why = finding.hinders(estimates, deciding.verdict) if finding.hinders else None
    obstacles = [*seeds.obstacles, *alone, *([why] if why else []), *_noise(finding, models, seeds)]
    uncontrolled = finding.uncontrolled if not any(one.decisive for one in controls) else ""
    too_small = [one.missing for one in controls if one.decisive and one.missing.startswith("too few")]
    verdict, reason = _verdict(deciding, shown, obstacles, uncontrolled, too_small)
    if verdict in ("holds", "fails") and (moves := unsettled(finding, models, set(seeds.used), outcomes, index)):
        verdict, reason = "undetermined", f"{reason} {_sentence(moves)}"
    if verdict == "undetermined":
        few = [*too_few(outcomes, len(seeds.used)), *(one.too_few for one in controls if one.decisive and one.too_few)]
        reason = " ".join([reason, *dict.fromkeys(_sentence(str(one)) for one in few)])
    needed = _seeds_needed(deciding, len(seeds.used)) if verdict == "undetermined" else None
    reason = " ".join(filter(None, [reason, seeds_text(needed, len(seeds.used))]))
    if verdict != UNTESTABLE and len(seeds.used) == 1:
        reason += " One seed: the interval covers the choice of sentences, not of initial weights."
    row: dict[str, object] = {
        "verdict": verdict,
        "reason": reason,
        "effect": deciding.effect,
        "low": deciding.low if covers else float("nan"),
        "high": deciding.high if covers else float("nan"),
        "covers": covers,
        "effects": deciding.effects,
        "threshold": deciding.condition.threshold,
        "unit": deciding.condition.unit,
        "control": shown.value if shown else float("nan"),
        "control_name": shown.name if shown else "",
        "seeds": len(seeds.used),
        "seeds_needed": needed or 0,
        "note": "\n".join([*(f"{o}: {o.verdict}" for o in outcomes), *map(str, controls), *seeds.left_out]),
    }
    return Judged(row=row, outcomes=outcomes, deciding=index)


def _seeds_needed(deciding: Outcome, seeds: int) -> int | None:
    """How many seeds would decide the claim; None if its interval already does and something else prevents a verdict.

    If the values are shares of counted items in each seed, Wilson's interval must decide as well.
    """
    condition = deciding.condition
    needed = seeds_to_decide(
        deciding.effect,
        Interval(deciding.low, deciding.high),
        condition.threshold,
        seeds=seeds,
        seed_error=deciding.seed_error,
        sentence_error=deciding.sentence_error,
    )
    counted = seeds_to_count(deciding.effect, condition.of, condition.threshold, seeds=seeds) if condition.of else None
    return max((one for one in (needed, counted) if one is not None), default=None)


def _noise(finding: Finding, models: ModelGroup, seeds: _Seeds) -> list[str]:
    """Report the readings on which two halves of the sentences do not agree."""
    if (halved := finding.reliable) is None:
        return []
    try:
        found = gather(halved.reads, models, within=set(seeds.used))
    except Absent as absent:
        return [f"how far two halves of the sentences agree is not known ({absent})"]
    halves = {name: float(one.values_UK.min()) for name, one in found.items()}  # a NaN of any seed is kept
    return [
        f"in a {name}, {halved.of} from two halves of the sentences correlate at only {short(value)} "
        f"(needed: {halved.least}): evaluate on more sentences"
        for name, value in halves.items()
        if not value >= halved.least
    ]


def _verdict(
    deciding: Outcome, control: ControlOutcome | None, obstacles: list[str], uncontrolled: str, unmeasurable: list[str]
) -> tuple[Verdict, str]:
    if control is None and not uncontrolled:
        obstacles = [*obstacles, "no control was measured", *unmeasurable]
    if obstacles:
        return UNTESTABLE, " ".join(_sentence(obstacle) for obstacle in obstacles)
    if control is None:
        why = _sentence(f"No control could show the claim: {uncontrolled}")
        return deciding.verdict, f"{_sentence(str(deciding))} {why}"
    if deciding.verdict == "holds" and control.shows_claim:
        return "undetermined", _sentence(
            f"{deciding}. The control shows it too: {control.name}, {short(control.value)}"
        )
    return deciding.verdict, _sentence(str(deciding))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
