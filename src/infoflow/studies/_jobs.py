"""The jobs of a study: train one model, measure one model. Each is keyed by what it depends on and done once."""

import dataclasses
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
from torch import nn
from transformers import PreTrainedModel

from infoflow.flow import (
    AbstractMeasure,
    Failure,
    Measured,
    PassOptions,
    SampleKey,
    TokenSample,
    agree,
    collect,
    describe_measure,
    first_then_others,
    is_first,
    wait_for_all,
)
from infoflow.foundation import UserError, current_display, digest
from infoflow.heads import ABLATION_TRANSFER
from infoflow.models import Model, load_model
from infoflow.results import RunFolder
from infoflow.training import TrainingHook, TrainResult, build_models, train

from ._data import StudyData, prepare
from ._dynamics import is_recorded, record, recorders
from ._measures import measures_by_table, pair_measures, standard_measures
from ._plan import StudyPlan
from ._pruning import is_pruned, pruned
from ._pruning_pieces import PIECE_COSTS, needed, pieces
from ._scores import TASK_SCORES, bleu_scores, task_scores
from ._transfer import transfer, transfer_keys
from ._weights import check_target, discard, is_intact, keep_sums, publish
from ._workbench import Computed, Part, Schemas, Workbench

Kind = Literal["train", "measure", "prune"]

_VERSION = 1  # raise when the same plan trains or scores other models
_COMPLETE = "complete"
_BOOKKEEPING = ("seed", "device", "log_every", "evaluate_every", "save_every", "keep_last", "keep_log_spaced")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One piece of a study that a process can do by itself."""

    kind: Kind
    objective: str
    seed: int
    trained: bool = True
    piece: str = ""  # of the model's pruning

    @property
    def model(self) -> str:
        """Name of its model in tables and in the run folder."""
        return f"{self.objective}/seed-{self.seed}"

    @property
    def label(self) -> str:
        return f"{self.kind} {self.model}{'' if self.trained else ' (untrained)'}{self.piece and f', {self.piece}'}"

    @classmethod
    def parse(cls, text: str) -> "Job":
        """The job that `text` (from `write`) stands for."""
        kind, objective, seed, trained, piece = text.split(":")
        assert kind in ("train", "measure", "prune")
        return cls(kind=kind, objective=objective, seed=int(seed), trained=trained == "1", piece=piece)  # type: ignore[arg-type]

    def write(self) -> str:
        return f"{self.kind}:{self.objective}:{self.seed}:{int(self.trained)}:{self.piece}"


class StudyJobs:
    """Does jobs for one plan in one run folder."""

    def __init__(self, plan: StudyPlan, run: RunFolder) -> None:
        self.plan, self.run = plan, run
        self.bench = Workbench(run.path / "work")
        self.data: StudyData = first_then_others(lambda: prepare(plan, self.bench.folder))

    # -- what a job depends on ----------------------------------------------------------------------------------------

    def train_key(self, job: Job) -> str:
        plan = self.plan
        training = {k: v for k, v in dataclasses.asdict(plan.training).items() if k not in _BOOKKEEPING}
        settings = [plan.model, training, plan.match, plan.objective(job.objective)]
        return digest([_VERSION, self.data.key, settings, job.objective, job.seed])

    def states_key(self, job: Job) -> str:
        """What the states of the job's model on the analysed sentences depend on."""
        return digest([self.train_key(job), job.trained, self.plan.analysis.sentences])

    def table_keys(self, job: Job) -> dict[str, str]:
        """What each table of a measured model depends on: a new measure leaves the others' tables as they are."""
        plan, states = self.plan.analysis, self.states_key(job)
        measures = measures_by_table(standard_measures(plan))
        scores = digest([states, TASK_SCORES.version, plan.bleu_sentences, plan.beams])
        keys = {name: digest([states, _describe(writing)]) for name, writing in measures.items()}
        return {TASK_SCORES.name: scores} | keys | transfer_keys(states, self.data.other_domain, plan)

    def pair_key(self, first: Job, second: Job) -> str:
        """What the comparison of two models depends on."""
        measures = _describe(pair_measures(self.plan.analysis))
        return digest([self.states_key(first), self.states_key(second), measures])

    def is_done(self, job: Job) -> bool:
        return agree(self._is_done(job))

    def _is_done(self, job: Job) -> bool:
        if job.kind == "train":
            return self.bench.done("trained", self.train_key(job)) and is_recorded(self, job)
        if job.kind == "prune":
            return is_pruned(self, job)
        keys = self.table_keys(job)
        return all(self.bench.done("measured", key) for key in keys.values()) and self._has_samples(job)

    def do(self, job: Job) -> None:
        """Do the job unless it is done."""
        if job.kind == "train":
            self.trained(job)
        elif job.kind == "prune":
            pruned(self, job)
        else:
            self.measured(job)

    # -- training -----------------------------------------------------------------------------------------------------

    def trained(self, job: Job) -> dict[str, Any]:
        """Train the job's model and put it into `models/`; facts of the training."""
        self.check_trained(job)
        facts = self.bench.facts("trained", self.train_key(job), lambda: self._train(job))
        record(self, job)
        self.publish(job)
        return facts

    def check_trained(self, job: Job) -> None:
        """Forget a training whose weights are no longer what it left: it is done again from its last checkpoint.

        Raises:
            UserError: Where the model is to be published lies something else.
        """
        if is_first():
            check_target(self._weights(job), self.model_folder(job))
            if self.bench.done("trained", self.train_key(job)) and not is_intact(self._weights(job)):
                discard(self._weights(job), job.model)
                self.bench.remove("trained", self.train_key(job))
        wait_for_all()

    def publish(self, job: Job) -> None:
        """Copy the plan's own weights to `models/`, where another plan's may lie, or damaged ones."""
        if is_first():
            publish(self._weights(job), self.model_folder(job), job.model)
        wait_for_all()

    def _weights(self, job: Job) -> Path:
        return self.bench.path("training", self.train_key(job)) / "model"

    def log(self, job: Job) -> Path:
        """Where the job's training wrote its losses."""
        return self._weights(job).parent / "log.jsonl"

    def model_folder(self, job: Job) -> Path:
        return self.run.models / job.model

    def _train(self, job: Job) -> dict[str, Any]:
        started = time.process_time()
        folder = self._weights(job).parent
        objective = self.plan.objective(job.objective)
        module, result = self.train_into(job, folder, recorders(self, job, folder))
        if is_first():
            keep_sums(self._weights(job))
        return {
            "updates": result.updates,
            "source_tokens": result.source_tokens,
            "target_tokens": result.target_tokens,
            "supervised_tokens": result.supervised_tokens,
            "seconds": result.seconds,
            "cpu_seconds": round(time.process_time() - started, 3),
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "validation_loss": objective.weighted(result.validation_losses) if result.validation_losses else math.nan,
        }

    def train_into(
        self,
        job: Job,
        folder: Path,
        hooks: Sequence[TrainingHook],
        module: PreTrainedModel | None = None,
        **bookkeeping: Any,
    ) -> tuple[nn.Module, TrainResult]:
        """Train the job's model in `folder`; its weights depend on nothing but the plan, and on hooks on `module`."""
        module, objective = module or self.initial(job), self.plan.objective(job.objective)
        positions = self.plan.model.positions
        result = train(
            objective,
            dataclasses.replace(self.plan.training, seed=job.seed, **bookkeeping),
            self.data.encoded(self.data.train, positions),
            module,
            folder,
            validation=self.data.encoded(self.data.validation, positions),
            hooks=hooks,
        )
        return module, result

    def initial(self, job: Job) -> PreTrainedModel:
        """The job's model before its first update."""
        objectives = [self.plan.objective(job.objective)]
        data = self.data
        models = build_models(
            objectives,
            self.plan.model,
            data.vocabulary,
            data.target_vocabulary,
            seed=job.seed,
            match=self.plan.match,  # type: ignore[arg-type]
        )
        return models[objectives[0].name]

    # -- measuring ----------------------------------------------------------------------------------------------------

    def measured(self, job: Job) -> Part:
        """Score and measure the job's model; its samples stay on disk for comparisons.

        Tables that are there are not computed again; the model still runs where samples are missing.
        """
        keys = self.table_keys(job)
        if not agree(self._has_samples(job)) and not self.bench.missing("measured", keys):
            self._measure(job, [])
        return self.bench.each_table("measured", keys, self.schemas(), lambda names: self._measure(job, names))

    def schemas(self) -> Schemas:
        measures = standard_measures(self.plan.analysis)
        own = {schema.name: schema for schema in (TASK_SCORES, ABLATION_TRANSFER)}
        return own | {each.name: each.table for each in measures}

    def samples_folder(self, job: Job) -> Path:
        return self.bench.path("samples", digest([self.states_key(job), _describe(pair_measures(self.plan.analysis))]))

    def _has_samples(self, job: Job) -> bool:
        """Samples are needed until the comparisons are made, and removed then."""
        if not pair_measures(self.plan.analysis) or (self.samples_folder(job) / _COMPLETE).exists():
            return True
        pairs = [pair for pair in model_pairs(self.plan) if job in pair]
        return all(self.bench.done("compared", self.pair_key(*pair)) for pair in pairs)

    def samples(self, job: Job) -> dict[SampleKey, TokenSample]:
        """The clean sample of the stack that reads the text, of a measured model."""
        return clean_samples(self.samples_folder(job))

    def failures(self, job: Job) -> list[Failure]:
        """Measures that failed on the job's model; their tables are not there, and the job is not done."""
        return self.bench.failures("measured", self.table_keys(job))

    def _measure(self, job: Job, names: list[str]) -> Computed:
        """The tables called `names`, and samples for the comparisons."""
        model, plan = self.load(job), self.plan.analysis
        by_table = measures_by_table(standard_measures(plan))
        measures = [measure for name in names for measure in by_table.get(name, [])]
        tables: Part = {}
        failures: tuple[Failure, ...] = ()
        if needs_samples := not agree(self._has_samples(job)):
            measures += pair_measures(plan)
        if any(measure.refusal(model) is None for measure in measures):
            measured = self._pass(job, model, measures, needs_samples)
            tables, failures = dict(measured.tables), measured.failures
        if ABLATION_TRANSFER.name in names:
            tables |= transfer(model, self.data, plan, self.plan.objective(job.objective))
        if TASK_SCORES.name in names:
            tables[TASK_SCORES.name] = self._scores(job, model)
        return Computed(tables=tables, failures=failures)

    def _pass(self, job: Job, model: Model, measures: list[AbstractMeasure], keep_samples: bool) -> Measured:
        options = PassOptions(
            tokens_per_batch=self.plan.analysis.tokens_per_batch,
            decoder_states=False,
            corruption=self.plan.objective(job.objective),
        )
        several = len(standard_measures(self.plan.analysis)) > 1
        run = partial(collect, model, self.data.analysed, measures, options=options, ranks_from=self.data.train)
        if not keep_samples:
            with TemporaryDirectory(prefix="infoflow-") as temporary:
                return run(folder=Path(temporary), keep_going=several)
        folder = self.samples_folder(job)
        if is_first():
            shutil.rmtree(folder, ignore_errors=True)
        wait_for_all()
        measured = run(folder=folder, keep_going=several)
        (folder / _COMPLETE).touch()
        return measured

    def load(self, job: Job) -> Model:
        """The job's model: trained, or as it was before the first update."""
        if job.trained:
            if not self.bench.done("trained", self.train_key(job)):
                raise UserError(f"{job.model} is not trained yet: run `infoflow study` on this folder first.")
            model = load_model(self._weights(job), device=self.plan.training.device)
        else:
            module = self.plan.objective(job.objective).exported(self.initial(job))
            model = load_model(module, tokenizer=self.data.tokenizer, device=self.plan.training.device)
        target = self.data.target_tokenizer if model.task == "seq2seq" else None
        return dataclasses.replace(model, name=job.model, target_tokenizer=target)

    def _scores(self, job: Job, model: Model) -> pd.DataFrame:
        objective, positions, plan = self.plan.objective(job.objective), self.plan.model.positions, self.plan.analysis
        training = self.data.encoded(self.data.train, positions)
        frames = [
            task_scores(model, objective, self.data.encoded(part, positions), part.content_ids, training, split)
            for split, part in (("validation", self.data.validation), ("test", self.data.analysed))
        ]
        if objective.needs_translation and job.trained:
            current_display().note(f"Translating {plan.bleu_sentences} sentences with {job.model}.")
            frames.append(bleu_scores(model, self.data.test, plan.bleu_sentences, plan.beams, "test"))
        return pd.concat(frames, ignore_index=True)


def clean_samples(folder: Path) -> dict[SampleKey, TokenSample]:
    """The samples of regime "clean" that a pass left under `folder` (of several processes, the first one's)."""
    paths = sorted(path for path in folder.rglob("*-clean") if path.is_dir())
    return {(path.name.removesuffix("-clean"), "clean"): TokenSample.load(path) for path in reversed(paths)}


def study_jobs(plan: StudyPlan) -> list[Job]:
    """All jobs, longest first, so that processes finish together."""
    training = [Job(kind="train", objective=name, seed=seed) for name in plan.objectives for seed in plan.seeds]
    training.sort(key=job_cost, reverse=True)
    measuring = [Job(kind="measure", objective=job.objective, seed=job.seed) for job in training]
    controls = [
        dataclasses.replace(job, trained=False)
        for job in measuring
        if plan.analysis.untrained and job.objective == base_objective(job.objective)  # a variant begins as its base
    ]
    return [*training, *pruning_jobs(plan), *controls, *measuring]


def pruning_jobs(plan: StudyPlan) -> list[Job]:
    """The pieces of the pruning that the plan asks for, each behind what it needs."""
    if not plan.pruning.on:
        return []
    models = [(name, seed) for name in plan.pruning.objectives for seed in plan.seeds]
    return [
        Job(kind="prune", objective=name, seed=seed, piece=piece)
        for name, seed in models
        for piece in pieces(plan, name)
    ]


def base_objective(name: str) -> str:
    """The objective of which `name` is a variant; itself where it is none."""
    return name.partition("+")[0]


def model_pairs(plan: StudyPlan) -> Iterator[tuple[Job, Job]]:
    """Pairs of measured models that differ in the objective or in the seed, not in both.

    A variant of an objective is compared with that objective only.
    """
    measured = [job for job in study_jobs(plan) if job.kind == "measure"]
    for first, second in combinations(sorted(measured, key=lambda job: (job.objective, job.seed)), 2):
        same = (first.objective == second.objective) + (first.seed == second.seed)
        if first.trained == second.trained and same == 1 and _comparable(first.objective, second.objective):
            yield first, second


def _comparable(first: str, second: str) -> bool:
    plain = first == base_objective(first) and second == base_objective(second)
    return plain or first == second or base_objective(first) == base_objective(second)


def job_cost(job: Job) -> float:
    """Rough relative cost, measured on a CPU at width 64: translation runs two stacks and longer sentences, a masked LM
    is measured as it reads and as it was trained."""
    if job.kind == "measure":
        return {"translation": 0.7, "causal-lm": 0.4, "masked-lm": 0.8}.get(base_objective(job.objective), 0.5)
    if job.kind == "prune":
        return PIECE_COSTS.get(job.piece.partition("/")[0], 0.5)
    return {"translation": 3.3, "causal-lm": 1.4, "masked-lm": 1.0}.get(base_objective(job.objective), 2.0)


def requirement(job: Job) -> Job | None:
    """The job that must be done before, if any."""
    if job.kind == "prune" and (piece := needed(job.piece)):
        return dataclasses.replace(job, piece=piece)
    return dataclasses.replace(job, kind="train", piece="") if job.kind != "train" and job.trained else None


def _describe(measures: Sequence[AbstractMeasure]) -> list[dict[str, Any]]:
    return [describe_measure(each) for each in measures]
