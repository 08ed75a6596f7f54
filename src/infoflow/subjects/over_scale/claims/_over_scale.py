"""Every claim in every run of a grid of scales: runs as points on the axes, effects, and how they change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings._evaluate import Judged, judged
from infoflow.findings._finding import UNTESTABLE, Condition, Finding, Outcome, short
from infoflow.findings._registry import FINDINGS
from infoflow.findings._schema import (
    FINDINGS_AT_SCALE,
    FINDINGS_BY_RUN,
    FINDINGS_OVER_SCALE,
    OVER_SCALE,
    JudgedRun,
    judged_runs,
)
from infoflow.foundation import UserError, current_display
from infoflow.results import (
    BERT,
    END,
    TRAINING_RUNS,
    UNTRAINED,
    RunFolder,
    Spec,
    TableSchema,
    first_architecture,
    with_keys,
)
from infoflow.subjects.over_training.claims._over_training import claims_over_training
from infoflow.training import SUFFIX

from ._scale_trends import TRENDS, reported_claims, trends

_TRAININGS, _MATCH = TRAINING_RUNS.name, "match"
_COUNTED = {"tokens": "source_tokens", "parameters": "parameters", "updates": "updates", "cpu_seconds": "cpu_seconds"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScaleRun:
    """A finished study: its tables, and the facts in run.json."""

    name: str
    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]
    _scales: dict[Any, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        return self._model("width")

    @property
    def layers(self) -> int:
        return self._model("layers")

    @property
    def decoder_layers(self) -> int:
        """Layers of an encoder-decoder's decoder: those of the encoder, unless the plan says otherwise."""
        given = self.manifest["plan"]["model"].get("decoder_layers", 0)
        return given if isinstance(given, int) and given > 0 else self.layers

    @property
    def corpus(self) -> str:
        corpus = self.manifest["plan"].get("corpus")
        return str(corpus.get("name", "")) if isinstance(corpus, dict) else ""

    @property
    def architecture(self) -> str:
        """The first architecture of the study's models."""
        return first_architecture({_TRAININGS: self.tables[_TRAININGS]}) or BERT.name

    @property
    def plan(self) -> Mapping[str, Any]:
        return self.manifest["plan"]

    @property
    def has_course(self) -> bool:
        """Whether the study measured its checkpoints, which count as further scales."""
        return any(name.endswith(SUFFIX) for name in self.tables)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a comparison's run.json, see `JudgedRun`."""
        plan = {part: self.plan[part] for part in ("model", "training") if part in self.plan}
        return {**self.facts(), **self.scale((), self.architecture), "weights": self.weights, "plan": plan}

    @property
    def weights(self) -> dict[str, str]:
        """The name of each trained model, by the SHA-256 of its weights."""
        models = self.manifest.get("models", [])
        return {str(one["sha256"]): str(one.get("model", "a model")) for one in models if one.get("sha256")}

    def scale(self, objectives: Sequence[Spec], architecture: str) -> dict[str, Any]:
        """Mean scale of the models of these objectives; NaN if unknown.

        The scale consists of source tokens, parameters, updates, FLOPs and CPU seconds.
        """
        key = (tuple(objectives), architecture)
        if key not in self._scales:
            own = _of(self.tables.get(_TRAININGS), objectives, architecture)
            match = _of(self.tables.get(_MATCH), objectives, architecture)
            self._scales[key] = {name: _mean(own, column) for name, column in _COUNTED.items()}
            self._scales[key]["flops"] = _mean(match, "flops")
        return self._scales[key]

    def facts(self) -> dict[str, Any]:
        """Facts that all models of the run share."""
        return {
            "run": self.name,
            "corpus": self.corpus,
            "width": self.width,
            "layers": self.layers,
            "decoder_layers": self.decoder_layers,
        }

    def _model(self, name: str) -> int:
        model = self.manifest["plan"].get("model")
        value = model.get(name) if isinstance(model, dict) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{self.name} is damaged: the plan in its run.json does not give the {name} of its models.")
        return value


def scale_runs(sources: Iterable[ScaleRun | JudgedRun | RunFolder | Path | str]) -> list[ScaleRun | JudgedRun]:
    """The distinct runs, with unique names; an earlier comparison contributes the runs that it compared.

    A study replaces an earlier comparison's data about its models.
    """
    runs: list[ScaleRun | JudgedRun] = []
    studies: list[RunFolder] = []
    for one in sources:
        if isinstance(one, ScaleRun | JudgedRun):
            runs.append(one)
            continue
        folder = one if isinstance(one, RunFolder) else RunFolder.existing(one)
        folder.require_tables()
        if folder.read().get("kind") == OVER_SCALE:
            runs += judged_runs(folder)
        else:
            studies.append(folder)
    names = _distinct([one.path for one in studies])
    runs += [_read(folder, name) for folder, name in zip(studies, names, strict=True)]
    given = {weights for run in runs if isinstance(run, ScaleRun) for weights in run.weights}
    runs = [run for run in runs if isinstance(run, ScaleRun) or given.isdisjoint(run.weights)]
    if len(runs) < 2 and not any(run.has_course for run in runs):
        raise UserError(
            f"Claims over scale need at least two runs, or one that kept checkpoints. Got {len(runs)}. For one run: "
            "infoflow findings RUN."
        )
    _refuse_same_models(runs)
    if len({run.name for run in runs}) < len(runs):
        raise UserError(
            f"Each run must have a unique name. Got {', '.join(sorted(run.name for run in runs))}. Rename a folder."
        )
    return sorted(runs, key=lambda run: run.name)


def _read(folder: RunFolder, name: str) -> ScaleRun:
    manifest = folder.read()
    if manifest.get("kind") != "study" or not isinstance(manifest.get("plan"), dict):
        raise UserError(
            f"{folder.path} is not a study, so how its models were trained is unknown. Give folders that `infoflow "
            "study` wrote, or an earlier `infoflow over-scale`."
        )
    if _TRAININGS not in folder.tables:
        raise UserError(f"{folder.path} has no table {_TRAININGS}. Let `infoflow study` finish there first.")
    run = ScaleRun(name=name, tables=folder.tables, manifest=manifest)
    run.facts()
    return run


def _distinct(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many parts as distinguish the runs."""
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        twice = next(path for index, path in enumerate(paths) if parts[index] in parts[:index])
        raise UserError(f"Each run counts once. {twice} was given twice.")
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("paths that differ have different names")


def _refuse_same_models(runs: Sequence[ScaleRun | JudgedRun]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        for weights, model in run.weights.items():
            if weights in seen:
                raise UserError(
                    f"{seen[weights]} and {run.name} hold the very same model {model}, which would count twice. "
                    "Give one of the two."
                )
        seen |= dict.fromkeys(run.weights, run.name)


def _of(frame: pd.DataFrame | None, objectives: Sequence[Spec], architecture: str) -> pd.DataFrame:
    """Rows about models of these objectives (all if none is named) that were trained from random weights."""
    if frame is None or frame.empty:
        return pd.DataFrame()
    frame = with_keys(frame)
    own = frame[(frame["start"] == "") & frame["architecture"].isin([architecture, ""])]
    labels = [Spec(str(one), str(other)).label for one, other in own[["objective", "variant"]].itertuples(index=False)]
    wanted = {one.label for one in objectives}
    return own[[not wanted or label in wanted for label in labels]]


def _mean(frame: pd.DataFrame, column: str) -> float:
    values = pd.to_numeric(frame[column], errors="coerce").dropna() if column in frame else pd.Series(dtype=float)
    return float(values.mean()) if len(values) else float("nan")


# Every claim in every run of a grid of scales: effects with threshold and published value, and how they change.


def findings_over_scale(runs: Iterable[ScaleRun | JudgedRun | RunFolder | Path | str]) -> dict[str, pd.DataFrame]:
    """`FINDINGS_OVER_SCALE`, `TRENDS`, `FINDINGS_BY_RUN` and `FINDINGS_AT_SCALE` of several studies, in any order.

    Each run is judged separately, as in `evaluate` and `findings_over_training`: with its own seeds and controls, and
    the same reasons for no verdict. **For a claim with several conditions, one is followed** over all runs and
    checkpoints: the one that decides the verdict in most runs (ties: the first). If the weakest condition of the
    largest run were followed, it would be weak there partly by chance, and so its effect would seem to fall.

    Args:
        runs: Folders of studies, or `ScaleRun`s of them. Folders of earlier comparisons stand for the studies that they
            compared: their stored results are reused, and the result covers all studies.

    Raises:
        UserError: See `scale_runs`.
    """
    given = scale_runs(runs)
    rows, findings, costs = [], [], []
    with current_display().progress("Claims", total=len(given), unit="runs") as progress:
        for run in given:
            one = run if isinstance(run, JudgedRun) else _judged_run(run)
            rows.append(one.rows)
            findings.append(one.findings)
            costs += one.costs()
            progress.advance()
    found = FINDINGS_OVER_SCALE.conform(_followed(pd.concat(rows, ignore_index=True)))
    each = FINDINGS_BY_RUN.conform(pd.concat(findings, ignore_index=True))
    course = trends(found)
    return {
        FINDINGS_OVER_SCALE.name: found,
        TRENDS.name: course,
        FINDINGS_BY_RUN.name: each,
        FINDINGS_AT_SCALE.name: _largest(each.assign(cost=costs), reported_claims(course)),
    }


def _judged_run(run: ScaleRun) -> JudgedRun:
    own = list(_judged(run))
    rows = pd.DataFrame([row for one in own for row in _of_claim(run, one)], columns=_columns(FINDINGS_OVER_SCALE))
    ends = [
        {**one.row, "architecture": one.row["architecture"] or BERT.name, "run": run.name}
        for one in own
        if one.row["update"] == END
    ]
    return JudgedRun(
        entry=run.entry,
        rows=FINDINGS_OVER_SCALE.conform(rows),
        findings=FINDINGS_BY_RUN.conform(pd.DataFrame(ends, columns=_columns(FINDINGS_BY_RUN))),
    )


def _columns(schema: TableSchema) -> pd.Index:
    return pd.Index(schema.column_names)


def _judged(run: ScaleRun) -> Iterator[Judged]:
    """All claims at the end of the run's training, then at its checkpoints."""
    for one in judged(run.tables, FINDINGS.values()):
        if one.row["update"] != UNTRAINED:
            yield one
    view, claims = claims_over_training(run.tables)
    for one in judged(view, claims) if claims else ():
        if one.row["update"] not in (END, UNTRAINED):
            yield one


def _largest(findings: pd.DataFrame, trends: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """For each claim and architecture, the row of the most expensive run that tests it."""
    findings = findings.assign(tested=findings["verdict"] != UNTESTABLE)
    keys = ["id", "architecture"]
    down = findings.sort_values(["tested", "cost", "run"], ascending=False, kind="stable")
    order = findings.drop_duplicates(keys)[keys]
    chosen = order.merge(down.drop_duplicates(keys), on=keys, how="left")
    trend = [trends.get((id, family), "") for id, family in chosen[keys].itertuples(index=False)]
    return FINDINGS_AT_SCALE.conform(chosen.drop(columns=["tested", "cost"]).assign(trend=trend))


def _of_claim(run: ScaleRun, found: Judged) -> Iterator[dict[str, Any]]:
    """Yield one row for each condition; it has no number if nothing was measured."""
    row = found.row
    finding = FINDINGS[str(row["id"])]
    keys = {name: row[name] for name in ("id", "claim", "update", "verdict", "reason", "seeds")}
    keys |= {"architecture": row["architecture"] or BERT.name, "followed": False, **run.facts()}
    keys |= _scale(run, finding, str(row["architecture"]), int(str(row["update"])))
    if not found.outcomes:
        empty = dict.fromkeys(
            ("effect", "low", "high", "seed_error", "sentence_error", "threshold", "published"), float("nan")
        )
        yield {**keys, **empty, "condition": "", "decides": False, "above": True, "unit": "", "effects": []}
    names = _distinct_runs([outcome.condition for outcome in found.outcomes])
    for index, outcome in enumerate(found.outcomes):
        yield {**keys, **_numbers(outcome), "condition": names[index], "decides": index == found.deciding}


def _distinct_runs(conditions: list[Condition]) -> list[str]:
    """The names of the conditions; if the two ends of a range share a name, their thresholds are added."""
    counts = Counter(one.name for one in conditions)
    sign = {"above": ">", "below": "<"}
    return [
        one.name if counts[one.name] == 1 else f"{one.name}: {sign[one.side]} {short(one.threshold)}"
        for one in conditions
    ]


def _numbers(outcome: Outcome) -> dict[str, Any]:
    condition = outcome.condition
    return {
        "effect": outcome.effect,
        "low": outcome.low,
        "high": outcome.high,
        "seed_error": outcome.seed_error,
        "sentence_error": outcome.sentence_error,
        "threshold": condition.threshold,
        "above": condition.side == "above",
        "published": condition.published,
        "unit": condition.unit,
        "effects": outcome.effects,
    }


def _scale(run: ScaleRun, finding: Finding, architecture: str, update: int) -> dict[str, float]:
    """Scale of the claim's models; a checkpoint has read tokens in proportion to its updates (batches are equal)."""
    scale = run.scale(finding.learned, architecture)
    share = 1.0 if update == END else update / scale["updates"]
    return {**scale, "tokens": scale["tokens"] * share}


def _followed(found: pd.DataFrame) -> pd.DataFrame:
    """Add `followed`, which is true for one condition of each claim on each architecture."""
    chosen = {key: _most_decisive(own) for key, own in found.groupby(["id", "architecture"], sort=False)}
    keys = zip(found["id"], found["architecture"], found["condition"], strict=True)
    return found.assign(followed=[condition in (chosen[id, family], "") for id, family, condition in keys])


def _most_decisive(rows: pd.DataFrame) -> str:
    """The condition that decides the verdict in most runs.

    Checkpoints count only if no run was tested at its end, and untestable rows only if nothing was tested.
    """
    tested, ended = rows["verdict"] != UNTESTABLE, rows["update"] == END
    for counted in (tested & ended, tested, ended, ended | ~ended):
        deciding = rows[counted & rows["decides"]]
        if len(deciding):
            counts = deciding["condition"].value_counts()
            order = list(dict.fromkeys(rows["condition"]))
            return min(counts.index, key=lambda name: (-counts[name], order.index(name)))
    return ""
