"""The front page as data, before any HTML."""

from dataclasses import dataclass

import pandas as pd

from infoflow.findings import FINDINGS_OVER_SCALE, FINDINGS_TABLE
from infoflow.heads import HEAD_CONFIDENCE
from infoflow.representations import MUTUAL_INFORMATION
from infoflow.results import RunFolder

from .._failure_kind import OTHER
from .._model_tables import ModelTables
from .._numbers import count_text, listed
from .._shown_models import entries_with_readers, seeds_of_lines
from ._cards import HOW_CHOSEN, Card, cards
from ._claims import ClaimsLine, claims_line
from ._learned import Learned, learned

_SMALL = 10_000_000  # models with fewer parameters are called small


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """Everything at the top of the page."""

    badge: str  # "one seed: exploratory"
    cards: list[Card]
    how_chosen: str
    learned: Learned | None
    trust: str
    claims: ClaimsLine | None

    @property
    def dull(self) -> frozenset[str]:
        """Lines with models that have not learned their task."""
        return self.learned.dull if self.learned else frozenset()


def first_screen(run: RunFolder, tables: ModelTables, figures: set[str]) -> Screen:
    """The front page of a run whose page shows the figures with these ids."""
    scored = learned(tables)
    dull = set(scored.dull) if scored else set()
    findings = run.tables.get(FINDINGS_TABLE.name)
    seeds = _seeds(run)
    return Screen(
        badge="one seed: exploratory" if tables.models.by == "objective" and seeds == 1 else "",
        cards=cards(tables, figures, dull),
        how_chosen=HOW_CHOSEN,
        learned=scored,
        trust=_trust(run, tables, seeds),
        claims=None if findings is None else claims_line(findings),
    )


def _seeds(run: RunFolder) -> int:
    return seeds_of_lines(entries_with_readers(run))[-1]


def _trust(run: RunFolder, tables: ModelTables, seeds: int) -> str:
    """What the intervals allow for, the size of the models, and the number of warnings."""
    study, over_scale = tables.models.by == "objective", tables.of_run(FINDINGS_OVER_SCALE.name)
    tested = pd.Series(dtype=int) if over_scale is None else over_scale.loc[over_scale["seeds"] > 0, "seeds"]
    if len(tested):
        told = [_of_studies(tested)]
    elif not study:
        told = [
            "Bands cover the choice of sentences; these external models were trained elsewhere, and no band covers that"
        ]
    elif seeds == 1:
        told = ["One seed: bands cover sentences, not initial weights, and marks are hollow"]
    else:
        told = [f"{seeds} seeds: bands cover initial weights and sentences" + (" (wide: two)" if seeds == 2 else "")]
    models = entries_with_readers(run)
    if "parameters" in models and len(models):
        sizes = [float(size) for size in models["parameters"] if pd.notna(size)]
        if sizes:
            texts = list(dict.fromkeys(count_text(float(size)) for size in sorted(sizes)))
            span = texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"
            small = ": small models" if max(sizes) < _SMALL else ""
            told.append(f"{span} parameters{small}")
    untrained = any(
        not bool(frame["trained"].all())
        for frame in tables.some([MUTUAL_INFORMATION.name, HEAD_CONFIDENCE.name]).values()
    )
    told.append("untrained models as control" if untrained else "each measure compared with its own baseline")
    count = len(run.read().get("warnings", []))
    if count:
        told.append(f"{count} warning{'s' if count > 1 else ''} (see Methods)")
    return "; ".join(told) + "."


def _of_studies(seeds: pd.Series) -> str:
    """What the intervals of several studies allow for."""
    least, most = int(seeds.min()), int(seeds.max())
    if most == 1:
        return "One seed per study: bars cover sentences, not initial weights"
    if least == most:
        return f"{most} seeds per study: bars cover initial weights and sentences"
    return f"{least} to {most} seeds per study: hollow marks (one seed) cover only sentences"


def verdict_words(claims: ClaimsLine) -> str:
    """`✓ 7 hold, ✗ 9 fail (3 opposite, 3 weaker), ? 1 open`; the remaining failures are of no named kind."""
    holds, fails, open_ = (claims.counts.get(name, 0) for name in ("holds", "fails", "undetermined"))
    named = [f"{count} {kind}" for kind, count in claims.kinds if kind != OTHER]
    kinds = f" ({listed(named)})" if named else ""
    parts = [f"✓ {holds} {'holds' if holds == 1 else 'hold'}"] if holds else []
    parts += [f"✗ {fails} {'fails' if fails == 1 else 'fail'}{kinds}"] if fails else []
    parts += [f"? {open_} open"] if open_ else []
    return listed(parts)
