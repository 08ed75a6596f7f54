"""Prune a trained model of a study by every method in the plan; `prune` prunes any model in one call.

Every sweep step is a separate part, keyed by the model, by the choice of its heads, and by its scores: a study
continues at the step where it stopped, and a larger plan only adds steps. The published models stay unchanged: each
stage prunes a copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, accepted_corpus, accepted_model, agree
from infoflow.foundation import UserError, as_written, check_own_folder, current_display
from infoflow.heads import Head, HeadSet
from infoflow.models import Anatomy, Model
from infoflow.report import check_output
from infoflow.results import RunFolder, Subject
from infoflow.studies._analyze import write_model_run
from infoflow.studies._data import at_most
from infoflow.studies._result_cache import Part, stacked
from infoflow.studies._study import removed_if_refused
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractStage, OfRecipe
from infoflow.studies.stages._train import Train, pass_options
from infoflow.training import trained_objective

from ..measures import (
    ALL_HEADS,
    PRUNED_HEADS,
    PRUNED_ROLES,
    PRUNING,
    Pruned,
    PrunedToEach,
    Recovery,
    point_tables,
    prune_to,
    prune_to_each,
    roles_left,
)
from ._pruning_curves import (
    LEARNED,
    PRUNED,
    RECOVERING,
    SCRATCH,
    STRAIGHT,
    SUBSET,
    UNPRUNED,
    CurveGroup,
    PlannedPoint,
    RemovalOrder,
    curves,
    groups,
    places,
    table_keys,
    too_many,
)
from ._pruning_points import Point, points


@dataclass(frozen=True, kw_only=True, eq=False)
class Prune(OfRecipe):
    """Part of a model's pruning: the curves of one method in one scope, or the unpruned model's scores and roles."""

    kind = "prune"
    named = "prune {self.recipe.name}, {self.piece}"
    makes = (PRUNING, PRUNED_HEADS, PRUNED_ROLES)
    piece: CurveGroup

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Prune]":
        """The stages that the plan requests, each after the stages that it needs."""
        plan, stages = models.plan, list[Prune]()
        for recipe in plan.recipes(plan.pruning.objectives) if plan.pruning.on else []:
            for piece in groups(plan, recipe.objective):
                need: AbstractStage = Train(models=models, recipe=recipe)
                if piece.before is not None:
                    need = cls(models=models, recipe=recipe, piece=piece.before)
                stages.append(cls(models=models, recipe=recipe, piece=piece, needs=(need.key,)))
        return stages

    @property
    def estimate(self) -> float:
        trained = {UNPRUNED: 0.1, LEARNED: 2.0, SUBSET: 2.0, STRAIGHT: 2.0, SCRATCH: 6.0}
        trained |= dict.fromkeys(RECOVERING, 6.0)
        return trained.get(self.piece.way, 0.5)

    def depends(self) -> list[Any]:
        """What the stage depends on; its steps have their own keys."""
        plan, trained = self.models.plan, self.models.train_key(self.recipe)
        return ["prune", trained, self.recipe.name, str(self.piece), plan.pruning, plan.analysis]

    def is_done(self) -> bool:
        if self.piece.way == UNPRUNED:
            return agree(all(self.cache.done(PRUNED, key) for key in self._unpruned_keys.values()))
        return agree(all(self._is_drawn(curve) for curve in self._curves))

    def run(self) -> dict[str, Any]:
        full = self._unpruned()[PRUNING.name].set_index("metric")["value"].to_dict()
        for curve in self._curves:
            self._draw(curve, full)
        return {}

    def tables(self) -> Part:
        return self._with_columns(stacked(self._parts()))

    # -- curves -------------------------------------------------------------------------------------------------------

    @cached_property
    def _curves(self) -> list[RemovalOrder]:
        return [curve for curve in curves(self.models.plan, self.recipe.objective) if curve.group == self.piece]

    def _places(self, curve: RemovalOrder) -> list[PlannedPoint]:
        every = places(self.models, self.recipe, curve)
        assert every is not None, "its sweep comes before"
        return every

    def _is_drawn(self, curve: RemovalOrder) -> bool:
        there = places(self.models, self.recipe, curve)
        return there is not None and all(
            self.cache.done(PRUNED, key)
            for place in there
            for key in table_keys(self.models, curve, place.origin).values()
        )

    def _draw(self, curve: RemovalOrder, full: dict[str, float]) -> None:
        """Compute the missing steps of a curve."""
        models, recipe = self.models, self.recipe
        for k in too_many(models, recipe, curve):
            current_display().warn(
                f"{recipe.name} has fewer heads than {k} in {curve.scope}: {curve.way} skips this step."
            )
        every = self._places(curve)
        wanted = [place for place in every if self.cache.missing(PRUNED, table_keys(models, curve, place.origin))]
        if not wanted:
            return
        for point in points(models, recipe, curve, wanted, every):
            keys = table_keys(models, curve, point.place.origin)
            self.cache.each_table(
                PRUNED, keys, self.plain_schemas(), lambda names, point=point: self._point(curve, point, full, names)
            )

    def _parts(self) -> Iterator[Part]:
        """The steps of the curves in order, each curve after the roles of the unpruned model."""
        before = self.cache.read_each(PRUNED, self._unpruned_keys)
        if self.piece.way == UNPRUNED:
            scores = before[PRUNING.name]
            yield {PRUNING.name: _named(scores.assign(baseline=scores["value"]), UNPRUNED, "")}
            return
        for curve in self._curves:
            every, draw = self._places(curve), curve.draw(self.recipe)
            if every and PRUNED_ROLES.name in table_keys(self.models, curve, ""):
                yield {PRUNED_ROLES.name: _named(before[PRUNED_ROLES.name], curve.way, curve.scope).assign(draw=draw)}
            for place in every:
                part = self.cache.read_each(PRUNED, table_keys(self.models, curve, place.origin))
                # Two steps may have the same heads, and so share a part.
                part[PRUNING.name] = part[PRUNING.name].assign(setting=place.setting)
                named = {name: _named(frame, curve.way, curve.scope) for name, frame in part.items()}
                yield {name: frame.assign(point=place.index) for name, frame in named.items()}

    # -- one step -----------------------------------------------------------------------------------------------------

    @property
    def _unpruned_keys(self) -> dict[str, str]:
        return table_keys(self.models, None, self.models.train_key(self.recipe))

    def _unpruned(self) -> Part:
        """Scores and roles of the converged model, which have no reference."""

        def compute(names: list[str]) -> Part:
            model = self.models.load(Subject(recipe=self.recipe))
            keys = {"method": UNPRUNED, "scope": "", "draw": self.recipe.seed, "point": -1}
            current_display().note(f"Scoring {self.recipe.name} before pruning.")
            part: Part = {}
            if {PRUNING.name, PRUNED_HEADS.name} & set(names):
                translates = self.models.objective(self.recipe).needs_translation
                scores = ["loss", "bleu"] if translates and self.models.plan.pruning.metric == "bleu" else ["loss"]
                unknown = dict.fromkeys(scores, float("nan"))
                part |= self._scores(model, frozenset(), {**keys, "setting": 0.0}, unknown)
            if PRUNED_ROLES.name in names:
                part[PRUNED_ROLES.name] = self._roles(model, frozenset(), keys)
            return part

        return self.cache.each_table(PRUNED, self._unpruned_keys, self.plain_schemas(), compute)

    def _point(self, curve: RemovalOrder, point: Point, full: dict[str, float], names: list[str]) -> Part:
        keys = {"method": curve.way, "scope": curve.scope, "draw": curve.draw(self.recipe), "point": point.place.index}
        part: Part = {}
        if {PRUNING.name, PRUNED_HEADS.name} & set(names):
            more = {**keys, "setting": point.place.setting, "undecided": point.undecided}
            scored = full if PRUNING.name in names else {}  # the remaining heads are known without reading sentences
            part |= self._scores(point.model, point.removed, more, scored, point.learned)
            if scored:
                _tell(part[PRUNING.name])
        if PRUNED_ROLES.name in names:
            part[PRUNED_ROLES.name] = self._roles(point.model, point.removed, keys)
        return part

    def _scores(
        self,
        model: Model,
        removed: HeadSet,
        keys: Mapping[str, Any],
        full: dict[str, float],
        learned: Mapping[Head, tuple[float, float]] | None = None,
    ) -> Part:
        beams, options = self.models.plan.analysis.beams, pass_options(self.models, self.recipe)
        sentences = at_most(self.models.data.analysed, self.models.plan.pruning.score_sentences)
        return point_tables(model, sentences, removed, keys, full, learned=learned, beams=beams, options=options)

    def _roles(self, model: Model, removed: HeadSet, keys: Mapping[str, Any]) -> pd.DataFrame:
        data, options = self.models.data, pass_options(self.models, self.recipe)
        sentences = at_most(data.analysed, self.models.plan.pruning.role_sentences)
        return roles_left(model, sentences, removed, keys, options=options, ranks_from=data.train)


def _named(frame: pd.DataFrame, method: str, scope: str) -> pd.DataFrame:
    """Rows with this curve's names: curves may share stored rows, and earlier versions stored no scope."""
    return frame.assign(method=method, scope=scope)


def _tell(rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    scores = ", ".join(f"{row.metric} {row.value:.3g} (was {row.baseline:.3g})" for row in rows.itertuples())
    kinds = [] if first["scope"] in ("", ALL_HEADS) else str(first["scope"]).split(", ")
    left = sum(int(first[f"kept_{kind.replace('-', '_')}"]) for kind in kinds) if kinds else int(first["kept"])
    kept = f"{left} of {left + first['total'] - first['kept']} removable heads are left"
    current_display().note(f"{first['method']}, step {first['point']}: {kept}, {scores}")


# `prune`: reduce a model of any form to a number or share of its heads, or to several, in one call.


By = Literal["importance", "confidence", "relevance", "random"]
_CORPUS, _KIND = "tatoeba-en-fr", "prune"


@overload
def prune(
    model: Model | Path | str,
    keep: int | str,
    corpus: Corpus | Path | str = ...,
    *,
    out: Path | str = ...,
    source: Path | str | None = ...,
    by: By = ...,
    kinds: Sequence[str] = ...,
    sentences: int | None = ...,
    seed: int = ...,
    masked: Path | str | None = ...,
    recover: int = ...,
    recover_rate: float = ...,
) -> Pruned: ...
@overload
def prune(
    model: Model | Path | str,
    keep: list[int | str] | list[int] | list[str] | tuple[int | str, ...],
    corpus: Corpus | Path | str = ...,
    *,
    out: Path | str = ...,
    source: Path | str | None = ...,
    by: By = ...,
    kinds: Sequence[str] = ...,
    sentences: int | None = ...,
    seed: int = ...,
    masked: Path | str | None = ...,
    recover: int = ...,
    recover_rate: float = ...,
) -> PrunedToEach: ...
def prune(
    model: Model | Path | str,
    keep: int | str | list[int | str] | list[int] | list[str] | tuple[int | str, ...],
    corpus: Corpus | Path | str = _CORPUS,
    *,
    out: Path | str = "runs/prune",
    source: Path | str | None = None,
    by: By = "importance",
    kinds: Sequence[str] = (),
    sentences: int | None = 1000,
    seed: int = 0,
    masked: Path | str | None = None,
    recover: int = 0,
    recover_rate: float = 1e-4,
) -> Pruned | PrunedToEach:
    """Keep the attention heads that matter most, physically remove the others, and write the smaller model.

    >>> small = prune("all-MiniLM-L6-v2", "50%", "own.txt", out="small")  # doctest: +SKIP
    >>> small.quality  # doctest: +SKIP

    Args:
        model: A loaded model, a folder, a .gguf file, or a name.
        keep: Heads to keep in the whole model: a number, or a share such as "50%". A list such as [120, 96, "50%"]
            writes a smaller model for each to `out/keep-NUMBER`, and a page with the curve to `out`.
        corpus: Corpus, as for `load_corpus`: half ranks the heads, half scores.
        out: Folder for the smaller model: new, or written by an earlier call.
        source: Folder of a loaded model that infoflow trained: it records how the model read text.
        by: The ranking of the heads.
        kinds: Kinds of attention whose heads may be removed: encoder-self, decoder-self, decoder-cross; none: all.
        sentences: Maximum number of sentences, chosen by hash.
        seed: Seed of the random order.
        masked: Folder for a copy of the whole model with zeros in place of the removed heads; it is never trained.
        recover: Updates of further training on all sentences of the corpus that are not used to score the model.
        recover_rate: Highest learning rate of the further training.

    Raises:
        UserError: See `prune_to`; or `keep` is neither a number nor a share.
    """
    if recover and masked is not None:
        raise UserError("--masked writes the model as it is before further training. Leave out --masked or --recover.")
    loaded = accepted_model(model)
    if source is None and isinstance(model, str | Path):
        source = model
    text = accepted_corpus(corpus)
    how: dict[str, Any] = {
        "by": by,
        "kinds": tuple(kinds) or None,
        "sentences": sentences,
        "seed": seed,
        "options": PassOptions(corruption=None if source is None else trained_objective(str(source))),
        "masked": None if masked is None else Path(masked),
        "recover": Recovery(updates=recover, rate=recover_rate) if recover else None,
    }
    if isinstance(keep, int | str):
        return prune_to(loaded, text, _kept(keep, loaded.anatomy), out, **how)
    if not keep:
        raise UserError("keep must hold a number of heads. Got an empty list. Write for example [120, 96, 72].")
    run = RunFolder(out)
    check_own_folder(run.path, "run.json", "A curve of pruned models")
    check_output(run, _KIND)
    numbers = [_kept(one, loaded.anatomy) for one in keep]
    with removed_if_refused(run):
        run.update(kind=_KIND, title=f"{loaded.name} with fewer heads")  # lets an interrupted call recognise its folder
        found = prune_to_each(loaded, text, numbers, run.path, **how)
    tables = {PRUNING: found.pruning, PRUNED_HEADS: found.pruned_heads}
    return replace(found, report=write_model_run(run, loaded, text, tables))


def _kept(keep: int | str, anatomy: Anatomy) -> int:
    """Number of heads to keep; a share is rounded to the nearest head."""
    text = str(keep)
    try:
        if text.endswith("%"):
            return round(float(text[:-1]) / 100 * sum(one.num_heads for one in anatomy.attentions()))
        return int(text)
    except (ValueError, OverflowError):
        raise UserError(
            f'keep must be a number of heads or a share such as "50%". Got {as_written(keep)}. Write one of them.'
        ) from None
