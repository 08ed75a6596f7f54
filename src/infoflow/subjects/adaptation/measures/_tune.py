"""Tune a model for a task, with a grid of learning rates and several seeds; an interrupted tuning can be resumed."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import (
    Progress,
    UserError,
    as_written,
    atomic_folder,
    check_own_folder,
    current_display,
    in_markdown,
    locked,
    name_of,
    sweep_partial,
)
from infoflow.models import Model, discover, load_model, require_whole, save_model
from infoflow.training import (
    LengthBucketSampler,
    TrainConfig,
    TrainingDiverged,
    TrainingHook,
    TrainResult,
    train,
    trained_objective,
)

from ._body import FeatureStore, LayerMix, frozen_body
from ._make_task import make_task
from ._methods import EarlyStop, TuneConfig, merge_adapters, prepare
from ._tables import TASK_ANSWERS, TASK_SCORES
from ._task import AbstractTask, Predictions, TaskData, check_task_name
from ._task_model import fresh_model, tell_of_fresh
from ._task_parts import TaskParts, fitted, tell_of_room
from ._tuned import (
    KEY_FILE,
    TASK_FILE,
    Tuned,
    answer_rows,
    load_tuned,
    predictions_of,
    read_key,
    read_results,
    task_to,
    write_facts,
    write_key,
    write_results,
)

Hooks = Callable[[int, float], Sequence[TrainingHook]]
"""Creates the hooks for the training with a seed and a learning rate."""
_WORK = ".work"
_NO_NUMBER, _DIVERGED = -1e9, -2e9
"""Stand-ins for an undefined main metric (the correlation of a constant guess) and for a diverged training."""
_MICRO_TOKENS = 8192
_MOST_BATCH_TOKENS = 10**8
_OPERATIONS_APART = 2.5e11  # floating-point operations between two checkpoints: about ten seconds of one core


def tune(
    model: Model | str | Path,
    data: TaskData,
    config: TuneConfig | None = None,
    out: Path | str = "tuned",
    *,
    task: AbstractTask | None = None,
    strategy: str = "as-is",
    hooks: Hooks | None = None,
    features: Path | None = None,
) -> Tuned:
    """Tune a model for a task with every seed, at the learning rate that is best on dev with the first seed.

    ```
    out/<task>/<method>/seed-0/       plain Hugging Face folder with tokenizer; task.json: labels, metric, recipe
        ...            /tuning.json   settings that all seeds share, and the dev metric of each learning rate
    out/features/                     features that a frozen body computed, shared over tasks, seeds and rates
    ```

    Variants with fewer examples or a control have their own folder (`full-200-shuffled-labels`). Another call resumes:
    a killed training ends with exactly the weights of an uninterrupted one, and finished seeds are read from disk.
    Models trained only to choose the rate are removed.

    Args:
        model: The model to start from, or a source for `load_model`.
        data: The task's parts.
        config: The settings.
        out: Root of the output folders.
        task: The objective; default: `make_task` of `data`, with the pretraining objective recorded in the model's
            folder. A loaded model has no such record, so use `make_task(data, trained=...)` for it.
        strategy: Pretraining before tuning, for tables; see `STRATEGIES`.
        hooks: Creates the hooks for each (seed, learning rate), including rates that are not chosen.
        features: Folder for the features of frozen bodies, in place of `out/features`; it may be removed afterwards.

    Raises:
        UserError: The model has no head for the task, training diverged at all learning rates, or the folder holds a
            tuning with other settings.
    """
    loaded = model if isinstance(model, Model) else load_model(model)
    require_whole(loaded.module, loaded.name, "Tuning")
    config = config or TuneConfig()
    trained = None if isinstance(model, Model) else trained_objective(model)
    work = _Tuning(loaded, data, config, Path(out), task or make_task(data, trained=trained), hooks, features)
    with locked(work.home):
        return work.run(strategy)


class _Tuning:
    """Manages the folder and the training runs of all seeds, for one model and one task."""

    def __init__(
        self,
        model: Model,
        data: TaskData,
        config: TuneConfig,
        out: Path,
        task: AbstractTask,
        hooks: Hooks | None,
        features: Path | None,
    ) -> None:
        check_task_name(task.task)
        self.model, self.config, self.hooks = model, config, hooks
        self.task = fitted(task, model, config)
        tell_of_room(self.task, task, model, config)
        task = self.task
        self._noted = False
        self.home = out / task.task / config.way
        self.features = features or out / "features"
        self.parts = TaskParts.of(model, data, task, config)
        self.key = {
            "model": model.digest,
            "train": data.train.digest,
            "dev": data.dev.digest,
            "test": data.test.digest,
            **task_to(task),
            **config.key(),
            "max_length": self.parts.max_length,
        }

    def run(self, strategy: str) -> Tuned:
        """Results of every seed, from the folder or from training."""
        sweep_partial(self.home)
        begun = not self.home.exists()
        self._open()
        try:
            self._each_seed()
        except UserError:
            # If an error is raised before any training, files of this call are removed; older files stay.
            if begun and not any(self.home.rglob("*.safetensors")):
                shutil.rmtree(self.home, ignore_errors=True)
            raise
        shutil.rmtree(self.home / _WORK, ignore_errors=True)
        return self._tuned(strategy)

    def _each_seed(self) -> None:
        tried = len(self.config.rates) if len(self.config.rates) > 1 else 0
        label = f"Tuning {self.model.name} for {self.task.task}"
        with current_display().progress(label, tried + len(self.config.seeds)) as progress:
            for seed in self.config.seeds:
                folder = self.home / f"seed-{seed}"
                if not (folder / TASK_FILE).exists():
                    self._finish(seed, self._choose(self.config.seeds[0], progress), folder)
                progress.advance(1)

    # -- folder -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        saved = read_key(self.home)
        if saved is None:
            check_own_folder(self.home, KEY_FILE, "A tuned model")
            write_key(self.home, self.key, {})
            return
        wanted = json.loads(json.dumps(self.key))
        known = saved["key"]
        if changed := [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]:
            listed = "; ".join(
                f"{name} was {as_written(known.get(name))}, is {as_written(wanted.get(name))}" for name in changed[:4]
            )
            raise UserError(
                f"{self.home} contains models tuned with other settings: {listed}.\n"
                "Choose another output folder, or use the old settings to continue."
            )

    # -- training -----------------------------------------------------------------------------------------------------

    def _choose(self, seed: int, progress: Progress) -> float:
        """The learning rate with the best main metric on dev; the first one wins ties."""
        rates = self.config.rates
        if len(rates) == 1:
            return rates[0]
        found: dict[str, float] = (read_key(self.home) or {})["rates"]
        untried = [rate for rate in rates if str(rate) not in found]
        for rate in untried:
            found[str(rate)] = self._tried(seed, rate)
            progress.advance(1)
            write_key(self.home, self.key, found)
            for other in set(map(float, found)) - {_best(found)}:
                shutil.rmtree(self._work(seed, other), ignore_errors=True)
        best = _best(found)
        if found[str(best)] == _DIVERGED:
            raise self._diverged(", ".join(found))
        if untried:
            self._tell(found)
        return best

    def _tried(self, seed: int, rate: float) -> float:
        """The main metric on dev after training at a rate; the lowest value, with a note, if training diverged."""
        try:
            with self._trained(seed, rate) as (module, _):
                return self._main(module)
        except TrainingDiverged:
            shutil.rmtree(self._work(seed, rate), ignore_errors=True)
            current_display().note(
                f"{self.task.task}, {self.config.method}: training diverged at the learning rate {rate}, which is not "
                "chosen."
            )
            return _DIVERGED

    def _diverged(self, rates: str) -> UserError:
        return UserError(
            f"Loss and gradient must stay finite. Those of {self.task.task}, {self.config.method}, did not at the "
            f"learning rates that were tried: {rates}.\nUse lower ones: --rates (in plans and Python learning_rates)."
        )

    def _main(self, module: PreTrainedModel) -> float:
        """The main metric on dev; a constant prediction, which has no correlation, counts as the worst."""
        score = self.task.scores(self._predictions(module, "dev", self.task), self.parts.dev, self.parts.train)[0]
        value = float(score.row["value"])
        return value if math.isfinite(value) else _NO_NUMBER

    def _tell(self, found: dict[str, float]) -> None:
        said = {rate: "diverged" if value == _DIVERGED else f"{value:.3f}" for rate, value in found.items()}
        listed = ", ".join(f"{rate} {value}" for rate, value in said.items())
        current_display().note(
            f"{self.task.task}, {self.config.method}: learning rate {_best(found)} is the best on dev ({listed})"
        )

    def _work(self, seed: int, rate: float) -> Path:
        return self.home / _WORK / f"seed-{seed}-rate-{rate}"

    @contextmanager
    def _trained(self, seed: int, rate: float) -> Iterator[tuple[PreTrainedModel, TrainResult]]:
        """A model trained with a seed and a rate; inside the `with` block, a frozen body is replaced by a lookup."""
        built = fresh_model(self.model, self.task, seed)
        if not self._noted:
            tell_of_fresh(built, self.model, self.task)
            self._noted = True
        module = prepare(built, self.task, self.config, seed)
        settings = self._settings(seed, rate, module)
        hooks = [*(self.hooks(seed, rate) if self.hooks else ()), *self._early_stop(settings.updates)]
        with self._frozen(module) if self.config.freezes else nullcontext():
            yield module, train(self.task, settings, self.parts.training, module, self._work(seed, rate), hooks=hooks)

    def _frozen(self, module: PreTrainedModel) -> AbstractContextManager[None]:
        """Replace the module's body by a lookup inside a `with` block; a mix of all states has its own cache."""
        if self.config.method != "mix":
            return frozen_body(module, FeatureStore(self.features / self.model.digest))
        mix = LayerMix(len(discover(module.eval()).stacks[-1].layers) + 1)  # the last stack may be a lone encoder
        return frozen_body(module, FeatureStore(self.features / f"{self.model.digest}-all"), mix)

    def _early_stop(self, updates: int) -> list[TrainingHook]:
        """The hook that ends training when dev no longer improves; it runs after all others and scores every epoch."""
        if not self.config.patience:
            return []
        return [EarlyStop(self._main, updates // self.config.passes, self.config.patience)]

    def _settings(self, seed: int, rate: float, module: PreTrainedModel) -> TrainConfig:
        config, lengths = self.config, np.asarray(self.parts.training.source.lengths)
        apart = _passes_apart(module, int(lengths.sum()), frozen=config.freezes)
        tokens = min(int(lengths.max()) * config.batch_examples, _MOST_BATCH_TOKENS)
        batches = LengthBucketSampler(lengths, seed, tokens, config.batch_examples).num_batches
        return TrainConfig(
            updates=config.passes * batches,
            batch_tokens=tokens,
            batch_sentences=config.batch_examples,
            micro_tokens=_MICRO_TOKENS,
            seed=seed,
            learning_rate=rate,
            warmup=config.warmup,
            betas=(0.9, 0.999),
            weight_decay=config.weight_decay,
            decay_norms=False,
            clip=config.clip,
            precision="fp32" if config.freezes else config.precision,
            device=config.device,
            save_every=config.save_every or batches * apart,
            keep_last=1,
        )

    # -- results ------------------------------------------------------------------------------------------------------

    def _finish(self, seed: int, rate: float, folder: Path) -> None:
        """Train with a seed, evaluate, and save the model's folder."""
        try:
            with self._trained(seed, rate) as (module, result):
                if self.config.method == "lora":
                    merge_adapters(module)
                task, mix = self.task.settled(module), getattr(module.base_model, "mix", None)
                predictions = {part: self._predictions(module, part, task) for part in ("dev", "test")}
        except TrainingDiverged as error:
            shutil.rmtree(self._work(seed, rate), ignore_errors=True)
            raise self._diverged(f"{rate}, with seed {seed}") from error
        scores = {part: self._scores(found, part) for part, found in predictions.items()}
        answers = answer_rows(self.task, predictions["test"], self.parts.test, self.config.answers)
        with atomic_folder(folder) as temporary:
            tokenizer = self.parts.tokenizer_for(module)
            card = self._card(seed, [row for rows in scores.values() for row in rows])
            save_model(module.cpu(), temporary, tokenizer, self.parts.target_tokenizer, card)
            mixed = {} if mix is None else {"mix": {"shares": mix.shares, "scale": mix.scale.item()}}
            write_facts(temporary, task, {**self._facts(seed, rate, result.updates, scores), **mixed})
            write_results(temporary, [row for rows in scores.values() for row in rows], answers)
        shutil.rmtree(self._work(seed, rate), ignore_errors=True)

    def _card(self, seed: int, scores: list[dict[str, Any]]) -> dict[str, Any]:
        base, task = name_of(self.model.name), self.task.task
        description = f"{base}, tuned by infoflow for the {self.task.shape} task {task} ({self.config.way})."
        ends = [f"95% interval [{row['low']:.4f}, {row['high']:.4f}]" for row in scores]
        both = list(zip(scores, ends, strict=True))
        return {
            "title": f"{base} for {task}, seed {seed}",
            "text": in_markdown(description),
            "scores": [f"- {row['metric']} on {row['part']}: {row['value']:.4f}, {end}" for row, end in both],
            "results": [
                {"data": f"{task} {row['part']}", "metric": row["metric"], "value": row["value"], "note": end}
                for row, end in both
                if math.isfinite(row["value"])
            ],
            "tags": [self.task.shape],
        }

    def _predictions(self, module: PreTrainedModel, part: str, task: AbstractTask) -> Predictions:
        corpus = getattr(self.parts, part)
        return predictions_of(task, module, self.parts.rows(part), corpus, self.parts.vocabulary)

    def _scores(self, predictions: Predictions, part: str) -> list[dict[str, Any]]:
        found = self.task.scores(predictions, getattr(self.parts, part), self.parts.train)
        return [
            {"part": part, "metric": score.metric, "main": index == 0, **score.row} for index, score in enumerate(found)
        ]

    def _facts(self, seed: int, rate: float, updates: int, scores: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        return {
            "shape": self.task.shape,
            "labels": list(self.task.labels),
            "metric": scores["dev"][0]["metric"],
            "dev": scores["dev"][0]["value"],
            "test": scores["test"][0]["value"],
            "model": {"name": name_of(self.model.name), "digest": self.model.digest},
            "examples": len(self.parts.train),
            "recipe": {**self.config.key(), "max_length": self.parts.max_length},
            "rates": (read_key(self.home) or {})["rates"],
            "seed": seed,
            "learning_rate": rate,
            "updates": updates,
        }

    def _tuned(self, strategy: str) -> Tuned:
        models = tuple(load_tuned(self.home / f"seed-{seed}") for seed in self.config.seeds)
        if other := next((one for one in models if one.task != models[-1].task), None):
            raise UserError(
                f"{other.folder} was tuned by an older infoflow, whose regressions use another unit than those "
                f"of seed {models[-1].seed}.\nRemove it, and run the command again: only this seed is trained again."
            )
        rows: dict[str, list[dict[str, Any]]] = {"scores": [], "answers": []}
        for tuned in models:
            common = {
                "task": self.task.task,
                "shape": self.task.shape,
                "strategy": strategy,
                "method": self.config.method,
                "examples": len(self.parts.train),
                "control": self.config.control,
                "tuning_seed": tuned.seed,
            }
            results = read_results(tuned.folder)
            trained = {"learning_rate": tuned.learning_rate, "updates": tuned.updates}
            rows["scores"] += [{**common, **trained, **row} for row in results["scores"]]
            rows["answers"] += [{**common, **row} for row in results["answers"]]
        return Tuned(
            task=models[0].task,
            models=models,
            train=self.parts.train,
            scores=pd.DataFrame(rows["scores"], columns=[column.name for column in TASK_SCORES.columns]),
            answers=pd.DataFrame(rows["answers"], columns=[column.name for column in TASK_ANSWERS.columns]),
        )


def _passes_apart(module: PreTrainedModel, tokens: int, *, frozen: bool) -> int:
    """Passes over `tokens` tokens between two checkpoints: at least one, and enough to take about ten seconds.

    The time on one core is estimated by 6 operations per token and parameter (with a frozen body, only parameters of
    the head) instead of a clock, so that all processes of a group save after the same update.
    """
    count = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad or not frozen)
    return math.ceil(_OPERATIONS_APART / (6 * count * tokens))


def _best(found: dict[str, float]) -> float:
    return float(max(found, key=lambda rate: found[rate]))
