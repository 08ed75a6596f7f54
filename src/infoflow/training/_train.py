"""The training loop. `train` may be killed at any moment; the same call then ends with exactly the same weights."""

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from infoflow import foundation
from infoflow._transformers import PreTrainedModel
from infoflow.models import save_model
from infoflow.objectives import AbstractObjective

from . import _checkpoint, _config, _update
from ._data import LengthBucketSampler, TrainingData
from ._records import FACTS, INITIAL_WEIGHTS, LogWindow, MetricsLog, check_conditions, check_key, run_key
from ._snapshots import SNAPSHOTS, SnapshotPlan, SnapshotWriter


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainResult:
    """Result of a finished run."""

    model: Path  # plain Hugging Face folder of the final weights
    updates: int
    source_tokens: int
    target_tokens: int
    supervised_tokens: int
    seconds: float  # duration of training, evaluating and saving, without interruptions
    validation_losses: dict[str, float]  # of the final weights, nats per item; empty without validation data
    cpu_seconds: float = math.nan  # CPU time of the same work in this process; NaN: not recorded


def train(
    objective: AbstractObjective,
    config: _config.TrainConfig,
    data: TrainingData,
    model: PreTrainedModel,
    out: Path | str,
    *,
    validation: TrainingData | None = None,
    hooks: Sequence[_update.TrainingHook] = (),
    snapshots: SnapshotPlan | None = None,
    parent: str = "",
) -> TrainResult:
    """Train `model` in place and leave checkpoints, `log.jsonl` and the final model under `out`.

    If the objective exports a part of the model, checkpoints and the final folder hold that part, and the other weights
    are saved next to it (`rest.safetensors`). Weights requested by `snapshots` are saved under `out/snapshots` for
    measuring; they do not affect the training, and existing ones must be reproduced. `parent` is the digest of the
    model that `model` was derived from; it is recorded in the final folder's `training.json`.

    After an interruption or a kill, another call with the same arguments continues from the newest checkpoint and ends
    with exactly the weights of an uninterrupted run (on the same hardware, with the same number of processes and
    threads). Under `torchrun` every process calls it; gradients are exchanged by `accelerate`.

    Raises:
        UserError: `out` holds a run with other settings, the loss is no longer finite, or an update differs from its
            existing snapshot.
        TrainingInterrupted: The process received SIGTERM or Ctrl-C; the state is saved.
    """
    run = _Run(objective, config, data, model, Path(out), validation, hooks, snapshots, parent)
    # Dropout is seeded before every forward pass, and the caller's random state is restored afterwards.
    with torch.random.fork_rng():
        return run.result() or run.train()


class _Run:
    def __init__(
        self,
        objective: AbstractObjective,
        config: _config.TrainConfig,
        data: TrainingData,
        model: PreTrainedModel,
        out: Path,
        validation: TrainingData | None,
        hooks: Sequence[_update.TrainingHook],
        snapshots: SnapshotPlan | None,
        parent: str,
    ) -> None:
        lengths = data.source.lengths
        self.sampler = LengthBucketSampler(lengths, config.seed, config.batch_tokens, config.batch_sentences)
        updates = self.sampler.updates_within(config.max_source_tokens, config.updates)
        self.config = dataclasses.replace(config, updates=updates)
        self.objective, self.data, self.model, self.out = objective, data, model, out
        self.validation, self.hooks = validation, hooks
        self.state = _checkpoint.TrainingState(key=run_key(objective, config, data, model, parent))
        self.checkpoints = _checkpoint.Checkpoints(out / "checkpoints", objective.exported)
        self.snapshots = self._writer(snapshots) if snapshots else None
        self.accelerator = _update.make_accelerator(config.device)
        self.window = LogWindow()

    def _writer(self, plan: SnapshotPlan) -> SnapshotWriter:
        exported, card = self.objective.exported, self._card("A checkpoint of this training.")
        return SnapshotWriter(plan, self.out / SNAPSHOTS, self.config, exported, self._tokenizers, card)

    @property
    def _tokenizers(self) -> tuple[Any, Any]:
        """The tokenizer of the input, and that of the output if it is in another language."""
        return self.data.tokenizer, self.data.target_tokenizer if self.objective.needs_translation else None

    def _card(self, text: str, scores: Sequence[str] = ()) -> dict[str, Any]:
        name, seed, family = self.objective.name, self.config.seed, type(self.model).__name__
        description = f"{family}, trained by infoflow on the objective `{name}` with seed {seed}. {text}"
        known = self.data.known(self.objective)
        return {"title": f"{name}, seed {seed}", "text": description, "tags": [name], "scores": scores, "known": known}

    def result(self) -> TrainResult | None:
        """The result of a complete run, with its weights loaded."""
        path = self.out / "model" / FACTS
        if not path.exists():
            foundation.check_own_folder(self.out / "model", FACTS, "A trained model")
            return None
        try:
            saved = foundation.read_object(path)
            self._check_key(saved.pop("key"))
            found = TrainResult(model=self.out / "model", **saved)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise foundation.UserError(
                f"{path} is damaged ({error}). Remove {path.parent} to train again from the last checkpoint."
            ) from None
        _checkpoint.load_weights(self.model, self.out / "model", self.objective.exported)
        if self.snapshots and self.accelerator.is_main_process:
            self.snapshots.end(self.out / "model")
        return found

    def train(self) -> TrainResult:
        """Train to the end, from the newest checkpoint or from the start."""
        self.model.to(self.accelerator.device).train()
        self.precision: _config.Precision = _config.resolve_precision(
            self.config.precision, self.accelerator.device, _width(self.objective.exported(self.model))
        )
        self.state.conditions = {"precision": self.precision, "processes": self.accelerator.num_processes}
        self.optimizer = _config.make_optimizer(self.model, self.config)
        self.updater = _update.Updater(self.objective, self.model, self.data, self.config, self.accelerator)
        self._resume()
        # Continue the clocks as if there had been no interruption.
        self._started = time.monotonic() - self.state.seconds
        self._cpu_started = time.process_time() - self.state.cpu_seconds
        if self.accelerator.is_main_process:
            self.log = MetricsLog(self.out / "log.jsonl", after_update=self.state.update)
        if self.snapshots and self.accelerator.is_main_process:
            self.snapshots.open()
        with foundation.stop_request() as request:
            with _config.mixed_precision(self.model, self.precision, self.accelerator.device):
                if self.state.update == 0:
                    self._snapshot(None)
                self._loop(request)
            return self._finish()

    def _loop(self, request: foundation.StopRequest) -> None:
        remaining = self.config.updates - self.state.update
        with foundation.current_display().progress(f"train {self.objective.name}", remaining, "updates") as progress:
            while not self._ended:
                result = self._step(stop=request.received)
                shown = self._record(result)
                progress.advance(1, **shown)
                self._snapshot(result)
                self._keep(stop=result.stop)

    @property
    def _ended(self) -> bool:
        return self.state.update >= self.config.updates or any(hook.ended for hook in self.hooks)

    def _step(self, stop: bool) -> _update.UpdateResult:
        update = self.state.update + 1
        rows = self.sampler.rows(update)
        batches = self.updater.batches(rows, self.sampler.epoch(update))
        rate = _config.learning_rate(update, self.config)
        step = _update.Step(
            update=update,
            total=self.config.updates,
            learning_rate=rate,
            module=self.model,
            objective=self.objective,
            batches=batches,
        )
        for hook in self.hooks:
            hook.on_step_begin(step)
        self.optimizer.zero_grad(set_to_none=True)  # a hook may have left gradients behind
        result = self.updater.accumulate(batches, rows, update, stop)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate_scale", 1.0)
        self.optimizer.step()
        for hook in self.hooks:
            hook.on_step_end(step)
        return result

    def _record(self, result: _update.UpdateResult) -> dict[str, str]:
        state = self.state
        state.update += 1
        state.source_tokens += result.source_tokens
        state.target_tokens += result.target_tokens
        state.supervised_tokens += sum(result.counts.values())
        self.window.add(result)
        if state.update % self.config.log_every and not self._ended:
            return {}
        self._require_finite()
        line = self.window.close(self.objective.term_weights)
        if self.accelerator.is_main_process:
            self.log.write(
                update=state.update,
                epoch=self.sampler.epoch(state.update),
                learning_rate=_config.learning_rate(state.update, self.config),
                source_tokens=state.source_tokens,
                target_tokens=state.target_tokens,
                supervised_tokens=state.supervised_tokens,
                **line,
            )
        return {"loss": f"{line['loss']:.3f}"}

    def _require_finite(self) -> None:
        if not self.window.finite:
            raise _update.TrainingDiverged(
                f"The loss or gradient of {self.objective.name} is not finite at update {self.state.update}.\n"
                f"Lower learning_rate (now {self.config.learning_rate}) or raise warmup (now {self.config.warmup})."
            )

    def _snapshot(self, result: _update.UpdateResult | None) -> None:
        update = self.state.update
        if self.snapshots is None or not self.snapshots.wants(update):
            return
        self._require_finite()
        if self.accelerator.is_main_process:
            self.snapshots.write(
                self.model,
                update,
                tokens=self.state.supervised_tokens,
                source_tokens=self.state.source_tokens,
                learning_rate=_config.learning_rate(update, self.config) if update else 0.0,
                loss=self._loss(result),
            )

    def _loss(self, result: _update.UpdateResult | None) -> float | None:
        if result is None:
            return None
        means = {name: float(loss) / max(result.counts[name], 1) for name, loss in result.losses.items()}
        return self.objective.weighted(means)

    def _keep(self, stop: bool) -> None:
        config, update = self.config, self.state.update
        final = self._ended
        evaluated = final or (config.evaluate_every > 0 and update % config.evaluate_every == 0)
        regular = config.save_every > 0 and update % config.save_every == 0
        if evaluated or regular or stop:
            self._require_finite()  # also between two log lines, since training continues from a checkpoint
            if evaluated and self.accelerator.is_main_process and self.validation is not None:
                self._evaluate(self.validation)
            self._save()
        if stop and not final:
            raise _update.TrainingInterrupted(update, self.out)

    def _evaluate(self, validation: TrainingData) -> None:
        # The noise is the same for every training seed, so that differences between seeds are differences of models.
        evaluation = _update.evaluate(
            self.objective, self.model, validation, micro_tokens=self.config.micro_tokens, precision=self.precision
        )
        state = self.state
        state.validation = evaluation.losses
        self.log.write(update=state.update, validation=evaluation.losses, validation_loss=evaluation.loss)
        if state.best is None or evaluation.loss < state.best["loss"]:
            state.best = {"update": state.update, "loss": evaluation.loss}

    def _save(self) -> None:
        self.state.seconds = time.monotonic() - self._started
        self.state.cpu_seconds = time.process_time() - self._cpu_started
        self.state.window = self.window.state()
        if self.accelerator.is_main_process:
            hooks = {f"{hook.name}:{name}": t for hook in self.hooks for name, t in hook.state_dict().items()}
            optimizer = _config.optimizer_state(self.model, self.optimizer)
            card = self._card(f"A checkpoint after {self.state.update} updates, from which training continues.")
            self.checkpoints.save(self.state, self.model, optimizer, hooks, self._tokenizers, card)
            self.checkpoints.tidy(self.config.keep_last)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        path = self._readable_checkpoint()
        if path is None:
            return
        state, optimizer, hooks = _checkpoint.load_training_state(path)
        self._check_key(state.key)
        check_conditions(state.conditions, self.state.conditions, self.out)
        _checkpoint.load_weights(self.model, path, self.objective.exported)
        _config.restore_optimizer(self.model, self.optimizer, optimizer)
        for hook in self.hooks:
            prefix = f"{hook.name}:"
            hook.load_state_dict({name.removeprefix(prefix): t for name, t in hooks.items() if name.startswith(prefix)})
        self.state = dataclasses.replace(state, conditions=self.state.conditions)
        self.window = LogWindow(**state.window)
        if self.accelerator.is_main_process:
            self.checkpoints.drop_after(state.update)
        foundation.current_display().note(f"{self.objective.name}: continuing after update {state.update} from {path}")

    def _readable_checkpoint(self) -> Path | None:
        """The newest readable checkpoint; damaged ones are skipped with a note."""
        for path in self.checkpoints.resumable():
            if not (why := _checkpoint.why_unreadable(path)):
                return path
            foundation.current_display().note(
                f"{path} is damaged ({why}): training continues from an earlier checkpoint, or from the start."
            )
        return None

    def _check_key(self, saved: dict[str, Any]) -> None:
        """Refuse to continue a run that began with another model, unless this model already has that run's weights."""
        wanted = self.state.key
        folders = [self.out / "model", *self.checkpoints.resumable()[:1]]
        if saved.get(INITIAL_WEIGHTS) != wanted[INITIAL_WEIGHTS] and any(
            _checkpoint.holds_weights(self.model, folder, self.objective.exported) for folder in folders
        ):
            self.state.key = wanted | {INITIAL_WEIGHTS: saved.get(INITIAL_WEIGHTS)}
        check_key(saved, self.state.key, self.out)

    def _finish(self) -> TrainResult:
        for hook in self.hooks:
            hook.on_train_end(self.model)
        state = self.state
        # Only the main process evaluates; every process returns its result.
        from accelerate.utils import broadcast_object_list  # slow import

        (validation,) = broadcast_object_list([state.validation])
        summary = {
            "updates": state.update,
            "source_tokens": state.source_tokens,
            "target_tokens": state.target_tokens,
            "supervised_tokens": state.supervised_tokens,
            "seconds": round(state.seconds, 3),
            "cpu_seconds": round(state.cpu_seconds, 3),
            "validation_losses": validation,
        }
        if self.accelerator.is_main_process:
            with foundation.atomic_folder(self.out / "model") as folder:
                part = self.objective.exported(self.model)
                losses = [f"- held-out {name}: {loss:.4f} nats" for name, loss in validation.items()]
                text = f"{state.update:,} updates, {state.source_tokens:,} source tokens."
                card = self._card(text, losses)
                save_model(part, folder, *self._tokenizers, card)
                _checkpoint.save_rest(self.model, part, folder)
                for name, other in self.objective.further_models(self.model).items():
                    save_model(other, folder / name, *self._tokenizers, self._card(f"Its {name}."))
                (folder / FACTS).write_text(json.dumps({**summary, "key": state.key}), encoding="utf-8")
            if self.snapshots:
                self.snapshots.end(self.out / "model")
        self.accelerator.wait_for_everyone()
        return TrainResult(model=self.out / "model", **summary)


def _width(model: PreTrainedModel) -> int:
    config = model.config
    return (config.encoder if config.is_encoder_decoder and hasattr(config, "encoder") else config).hidden_size
