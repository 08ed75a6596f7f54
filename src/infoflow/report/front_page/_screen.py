"""The front page as data, before any HTML."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from infoflow.findings import FINDINGS_OVER_SCALE, FINDINGS_TABLE
from infoflow.heads import HEAD_CONFIDENCE, HEAD_ROLES
from infoflow.objectives import Metric, metrics_of
from infoflow.representations import MUTUAL_INFORMATION
from infoflow.results import PROBE_SCORES, RETRIEVAL_SCORES, TASK_SCORES, RunFolder

from .._figure import ReportFigure
from .._in_words import count_text, decimals, listed, number
from .._model_selection import entries_with_readers, seeds_of_lines
from .._model_tables import ModelTables
from .._summary import KINDS, OTHER, UNTESTABLE, failure_kind, kind_text, verdict_verb
from ._cards import HOW_CHOSEN, Card, cards

_SMALL = 10_000_000  # models with fewer parameters are called small
_ABSENT = re.compile(r"^The table (\S+) is absent")
_PLAN = re.compile(r"a plan (?:that says|with|whose) (.+?)(?:,? makes it|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimsLine:
    """The front page's summary of the claims."""

    tested: int
    every: int
    verdicts: str  # "✓ 7 hold, ✗ 9 fail (3 opposite, 3 weaker), ? 1 undetermined"
    surprising: str  # the most surprising failure in words; "" without failures
    surprising_id: str
    reasons: list[tuple[str, int]]  # why other claims cannot be tested, most frequent first; only shared reasons


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """The front page's statement about the models' scores."""

    passed: list[str]  # one score per line that learned: "causal LM: loss 3.10 (3.09 to 3.12), without context 5.54"
    failed: list[str]  # sentences about the lines that have not
    dull: frozenset[str]  # lines with at least one model that has not learned


def learned(tables: ModelTables) -> Learned | None:
    """Which lines of the report have learned their task, judged by their scores; None if no task was scored."""
    if tables.models.by != "objective":
        return None
    found = [*_scored(tables), *_readers(tables)]
    if not found:
        return None
    return Learned(
        passed=[text for _, passed, text in found if passed],
        failed=[text for _, passed, text in found if not passed],
        dull=frozenset(line for line, passed, _ in found if not passed),
    )


class NextStep(NamedTuple):
    """What the reader could do next."""

    text: str
    code: str  # options or a command


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """Everything at the top of the page."""

    badge: str  # "one seed: exploratory"
    cards: list[Card]
    how_chosen: str
    learned: Learned | None
    trust: str
    claims: ClaimsLine | None
    next: NextStep | None

    @property
    def dull(self) -> frozenset[str]:
        """Lines with models that have not learned their task."""
        return self.learned.dull if self.learned else frozenset()


def first_screen(run: RunFolder, tables: ModelTables, figures: Sequence[ReportFigure]) -> Screen:
    """The front page of a run whose page shows these figures."""
    scored = learned(tables)
    dull = set(scored.dull) if scored else set()
    findings = run.tables.get(FINDINGS_TABLE.name)
    seeds = seeds_of_lines(entries_with_readers(run))[-1]
    claims = None if findings is None else claims_line(findings)
    return Screen(
        badge="one seed: exploratory" if tables.models.by == "objective" and seeds == 1 else "",
        cards=cards(tables, figures, dull),
        how_chosen=HOW_CHOSEN,
        learned=scored,
        trust=_trust(run, tables, seeds),
        claims=claims,
        next=_next_step(tables, seeds, scored, claims),
    )


def _next_step(tables: ModelTables, seeds: int, scored: Learned | None, claims: ClaimsLine | None) -> NextStep | None:
    """The step that would add most: first models that have learned, then seeds, then another measure or model."""
    if scored and scored.failed:
        text = "Train longer: a model that has not learned its task says little about its objective. More updates:"
        return NextStep(text, "--set training.updates=…")
    if tables.models.by == "objective":
        if seeds == 1 and claims:
            text = (
                "Train three seeds: claims that compare objectives need them, and intervals then cover initial weights."
            )
            return NextStep(text, "--seeds 0,1,2")
        for reason, count in claims.reasons if claims else []:
            if " in the plan" in reason:
                setting = reason.removeprefix("need ").removesuffix(" in the plan")
                return NextStep(f"{count} more claims can be tested with a longer plan:", setting)
        return None
    if HEAD_ROLES.name in tables.names:
        return NextStep(
            "A role does not show that a head matters. Remove heads and see:", "infoflow prune MODEL --keep 50%"
        )
    if PROBE_SCORES.name in tables.names:
        return NextStep("See whether a probe with a hidden layer reads more:", "--probe mlp")
    if HEAD_CONFIDENCE.name in tables.names:
        return NextStep("Compare it with a model that differs in one thing:", "infoflow compare MODEL OTHER")
    return None


def _trust(run: RunFolder, tables: ModelTables, seeds: int) -> str:
    """What the intervals cover, the size of the models, and the number of warnings."""
    study, over_scale = tables.models.by == "objective", tables.of_run(FINDINGS_OVER_SCALE.name)
    tested = pd.Series(dtype=int) if over_scale is None else over_scale.loc[over_scale["seeds"] > 0, "seeds"]
    if len(tested):
        stated = [_of_studies(tested)]
    elif not study:
        stated = [
            "Bands cover the choice of sentences; these external models were trained elsewhere, and no band covers that"
        ]
    elif seeds == 1:
        stated = ["One seed: bands cover the choice of sentences, not of initial weights, and marks are hollow"]
    else:
        stated = [f"{seeds} seeds: bands cover initial weights and sentences" + (" (wide: two)" if seeds == 2 else "")]
    models = entries_with_readers(run)
    if sizes := sorted(map(float, models["parameters"].dropna())) if "parameters" in models else []:
        span = " to ".join(dict.fromkeys((count_text(sizes[0]), count_text(sizes[-1]))))
        small = "small models of " if sizes[-1] < _SMALL else ""
        stated.append(f"{small}{span} parameters")
    untrained = any(
        not bool(frame["trained"].all())
        for frame in tables.some([MUTUAL_INFORMATION.name, HEAD_CONFIDENCE.name, PROBE_SCORES.name]).values()
    )
    stated.append("untrained models are the control" if untrained else "each measure is compared with its own baseline")
    count = len(run.read().get("warnings", []))
    if count:
        stated.append(f"{count} warning{'s' if count > 1 else ''} (see Methods)")
    return "; ".join(stated) + "."


def _of_studies(seeds: pd.Series) -> str:
    least, most = int(seeds.min()), int(seeds.max())
    if most == 1:
        return "One seed per study: bars cover sentences, not initial weights"
    if least == most:
        return f"{most} seeds per study: bars cover initial weights and sentences"
    return f"{least} to {most} seeds per study: hollow marks (one seed) cover only sentences"


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of these claims hold, and how many fail in which way; other failures are not named."""
    holds, fails, undetermined = (
        [row for row in rows if row["verdict"] == name] for name in ("holds", "fails", "undetermined")
    )
    kinds = Counter(map(failure_kind, fails))
    named = listed([f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind] and kind != OTHER])
    how = f" ({named})" if named else ""
    parts = [f"✓ {len(holds)} {verdict_verb('holds', len(holds))}"] if holds else []
    parts += [f"✗ {len(fails)} {verdict_verb('fails', len(fails))}{how}"] if fails else []
    parts += [f"? {len(undetermined)} undetermined"] if undetermined else []
    return listed(parts)


def claims_line(findings: pd.DataFrame) -> ClaimsLine | None:
    """Summarise the table of findings in one line; None if it is empty."""
    rows = findings.drop_duplicates("id").to_dict("records")
    if not rows:
        return None
    untested = [row for row in rows if row["verdict"] == UNTESTABLE]
    tested = [row for row in rows if row["verdict"] != UNTESTABLE]
    worst = max((row for row in tested if row["verdict"] == "fails"), key=_surprise, default=None)
    return ClaimsLine(
        tested=len(tested),
        every=len(rows),
        verdicts=_verdicts(tested),
        surprising=_text(worst) if worst else "",
        surprising_id=str(worst["id"]) if worst else "",
        reasons=Counter(filter(None, (_reason(str(row.get("reason") or "")) for row in untested))).most_common(),
    )


def _surprise(row: dict) -> tuple[int, float]:
    """Sort key: opposite effects first; within a kind, the farthest from the threshold in half-widths of intervals."""
    half = (float(row["high"]) - float(row["low"])) / 2
    distance = abs(float(row["effect"]) - float(row["threshold"]))
    far = distance / half if half > 0 else 0.0
    return -KINDS.index(failure_kind(row)), far if far == far else 0.0


def _text(row: dict) -> str:
    claim = str(row["claim"]).rstrip(".")
    low, high, value = (float(row[name]) for name in ("low", "high", "effect"))
    places = decimals(low, high, value)
    unit = str(row.get("unit") or "")
    bracketed = unit[:1].isdigit() or unit.startswith("share")  # units such as 1 − PWCCA, or share of heads
    unit = f" ({unit})" if bracketed else f" {unit}" if unit else ""
    words = f" ({kind})" if (kind := kind_text(row)) else ""
    return f"“{claim}” fails here{words}: {number(value, places)}{unit}, threshold {number(float(row['threshold']))}"


def _reason(text: str) -> str:
    """The first obstacle, in a few words; "" if it is peculiar to a claim."""
    if "has not learned its task" in text.split(". ")[0]:
        return "need models that have learned their task"
    if found := re.match(r"It needs (\d+) seeds", text):
        return f"need {found[1]} seeds of each objective"
    if _ABSENT.match(text):
        plan = _PLAN.search(text)
        return f"need {plan[1].strip().rstrip(',')} in the plan" if plan else "need a table that was not measured"
    if text.startswith("There is no"):
        return "need an objective that is not among the models"
    return ""


_Scored = Iterator[tuple[str, bool, str]]
"""The key of a line, whether it has learned, and its score in words."""


def _readers(tables: ModelTables) -> _Scored:
    """Whether readers of passages have learned, judged by the share of their own training queries that they answer."""
    frame = tables.get(RETRIEVAL_SCORES.name)
    if frame is None:
        return
    for line, own in tables.models.each(frame[frame["trained"]]):
        right = own[own["metric"] == "training_p1"]
        if right.empty:
            continue
        stated = f"{right['value'].mean():.0%} of its training queries (a guess: {right['baseline'].mean():.0%})"
        passed = bool((own.loc[own["metric"] == "learned", "value"] > 0.5).all())  # 1 or 0
        yield line.key, passed, f"{line.label} {'' if passed else 'has not learned to answer: '}{stated}"


def _scored(tables: ModelTables) -> _Scored:
    """Which models with a score on their task have learned it."""
    frame = tables.get(TASK_SCORES.name)
    if frame is None or "corpus" in frame:
        return
    frame = frame[frame["trained"] & (frame["split"] == ("test" if "test" in set(frame["split"]) else "validation"))]
    for line, own in tables.models.each(frame):
        metrics = metrics_of(str(own["objective"].iloc[0]))
        scored = {metric: rows for metric in metrics if len(rows := own[own["metric"] == metric.name])}
        missed = {metric: _missed(metric, rows) for metric, rows in scored.items()}
        for metric, short in missed.items():
            if short:
                yield line.key, False, _failed(line.label, metric, short, len(scored[metric]))
        if scored and not any(missed.values()):
            stated = ", ".join(_passed(metric, rows) for metric, rows in scored.items())
            yield line.key, True, f"{line.label} {stated}"


def _missed(metric: Metric, rows: pd.DataFrame) -> list[dict]:
    return [row for row in rows.to_dict("records") if not metric.learned(row["low"], row["high"], row["baseline"])]


def _passed(metric: Metric, rows: pd.DataFrame) -> str:
    places = decimals(float(rows["low"].mean()), float(rows["high"].mean()), float(rows["value"].mean()))
    value, base = number(float(rows["value"].mean()), places), number(float(rows["baseline"].mean()), places)
    return f"{metric.label} {value} ({metric.baseline}: {base})"


def _failed(label: str, metric: Metric, short: list[dict], seeds: int) -> str:
    places = min(decimals(float(row["low"]), float(row["high"]), float(row["value"])) for row in short)
    values = listed([_short_value(metric, row, places) for row in short])
    which = "" if len(short) == seeds else f" in {len(short)} of {seeds} seeds"
    needed = metric.needed(float(short[0]["baseline"]))
    return f"{label} has not learned its task{which}: {metric.label} {values}, {needed}"


def _short_value(metric: Metric, row: dict, places: int) -> str:
    """A score that misses its limit; with its interval if only the interval misses it."""
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    if not metric.learned(value, value, float(row["baseline"])):
        return number(value, places)
    return f"{number(value, places + 1)} ({number(low, places + 1)} to {number(high, places + 1)})"
