"""A run as a point on the axes of scale: its models, their data and their size."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings._judged_run import OVER_SCALE, JudgedRun, judged_runs
from infoflow.foundation import UserError
from infoflow.results import BERT, TRAINING_RUNS, RunFolder, Spec, first_architecture, with_keys
from infoflow.training import SUFFIX

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
        """The first family of its models' blocks."""
        return first_architecture({_TRAININGS: self.tables[_TRAININGS]}) or BERT.name

    @property
    def plan(self) -> Mapping[str, Any]:
        return self.manifest["plan"]

    @property
    def has_course(self) -> bool:
        """Whether measurements exist at its checkpoints, which also are scales."""
        return any(name.endswith(SUFFIX) for name in self.tables)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a comparison's run.json, see `JudgedRun`."""
        plan = {part: self.plan[part] for part in ("model", "training") if part in self.plan}
        return {**self.facts(), **self.scale((), self.architecture), "weights": self.weights, "plan": plan}

    @property
    def weights(self) -> dict[str, str]:
        """SHA-256 of the weights of each trained model → its name."""
        models = self.manifest.get("models", [])
        return {str(one["sha256"]): str(one.get("model", "a model")) for one in models if one.get("sha256")}

    def scale(self, objectives: Sequence[Spec], architecture: str) -> dict[str, Any]:
        """Mean scale of these objectives' models; NaN if unknown.

        It has source tokens, parameters, updates, FLOPs and CPU seconds.
        """
        key = (tuple(objectives), architecture)
        if key not in self._scales:
            own = _of(self.tables.get(_TRAININGS), objectives, architecture)
            match = _of(self.tables.get(_MATCH), objectives, architecture)
            self._scales[key] = {name: _mean(own, column) for name, column in _COUNTED.items()}
            self._scales[key]["flops"] = _mean(match, "flops")
        return self._scales[key]

    def facts(self) -> dict[str, Any]:
        """Facts shared by all its models."""
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
            raise UserError(f"{self.name} is damaged: the plan in its run.json names no {name} of its models.")
        return value


def scale_runs(sources: Iterable[ScaleRun | JudgedRun | RunFolder | Path | str]) -> list[ScaleRun | JudgedRun]:
    """The distinct runs, with unique names; an earlier comparison contributes the runs that it compared.

    A study replaces an earlier comparison's data about its models.

    Raises:
        UserError: There are fewer than two, without checkpoints; one is neither study nor comparison, holds no tables,
            or is listed twice; or two share a name, or the very same model, which would count twice.
    """
    runs: list[ScaleRun | JudgedRun] = []
    studies: list[RunFolder] = []
    for one in sources:
        if isinstance(one, ScaleRun | JudgedRun):
            runs.append(one)
        elif (folder := _existing(one)).read().get("kind") == OVER_SCALE:
            runs += judged_runs(folder)
        else:
            studies.append(folder)
    names = _distinct([one.path for one in studies])
    runs += [_read(folder, name) for folder, name in zip(studies, names, strict=True)]
    given = {weights for run in runs if isinstance(run, ScaleRun) for weights in run.weights}
    runs = [run for run in runs if isinstance(run, ScaleRun) or given.isdisjoint(run.weights)]
    if len(runs) < 2 and not any(run.has_course for run in runs):
        raise UserError(
            f"Claims over scale take two runs or more, or one that kept checkpoints. Got {len(runs)}. Of one run: "
            "infoflow findings RUN."
        )
    _refuse_same_models(runs)
    if len({run.name for run in runs}) < len(runs):
        raise UserError(
            f"Each run must have a name of its own. Got {', '.join(sorted(run.name for run in runs))}. Rename a folder."
        )
    return sorted(runs, key=lambda run: run.name)


def _existing(source: RunFolder | Path | str) -> RunFolder:
    folder = source if isinstance(source, RunFolder) else RunFolder.existing(source)
    folder.require_tables()
    return folder


def _read(folder: RunFolder, name: str) -> ScaleRun:
    manifest = folder.read()
    if manifest.get("kind") != "study" or not isinstance(manifest.get("plan"), dict):
        raise UserError(
            f"{folder.path} is no study: of what it measured no training is known. Give folders that `infoflow study` "
            "wrote, or an earlier `infoflow over-scale`."
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
        twice = next(path for place, path in enumerate(paths) if parts[place] in parts[:place])
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
