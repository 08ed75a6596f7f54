"""`infoflow tune`."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ._measuring import Tokenizer, run_name
from ._options import limited, numbers_in
from ._session import Device, Out, Session, TextColumn, run_folder, working
from ._settings import changed
from ._show import estimate, show, show_path, show_table
from ._tune_inside import InsideTuning

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.adaptation import AbstractTask, TaskData, TuneConfig, Tuned
    from infoflow.models import Model
    from infoflow.objectives import AbstractObjective
    from infoflow.results import RunFolder, TableSchema

_KIND = "tune"
_UNTRAINED = "untrained"
Part = Annotated[str | None, Parameter(show_default=False)]
Column = Annotated[str | None, Parameter(show_default=False)]


def tune(
    model: str,
    /,
    *,
    train: Annotated[
        str,
        Parameter(
            help="Labelled examples: label and text (and second text) between tabs, a word and its tag a line, .jsonl, "
            ".csv, .parquet, SQuAD's .json; .gz too; or hf:NAME:SPLIT."
        ),
    ],
    dev: Part = None,
    test: Part = None,
    task: Annotated[str | None, Parameter(help="Its name in tables and folders. Default: that of the folder.")] = None,
    shape: Literal["classification", "regression", "tagging", "span", "choice", "generation"] | None = None,
    as_text: Annotated[bool, Parameter(negative=())] = False,
    text_column: TextColumn = None,
    second_column: Column = None,
    label_column: Column = None,
    question_column: Column = None,
    choices_column: Column = None,
    answers_column: Column = None,
    answer_starts_column: Column = None,
    words_column: Column = None,
    tags: Column = None,
    multi: Annotated[bool, Parameter(negative=())] = False,
    method: Literal["full", "frozen", "top", "decay", "lora"] = "full",
    rates: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    seeds: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    examples: Annotated[int, Parameter(converter=limited("CountOrNone"))] = 0,
    epochs: Annotated[int, Parameter(converter=limited("Count"))] = 4,
    controls: Annotated[bool, Parameter(negative=())] = False,
    from_scratch: Annotated[bool, Parameter(negative=())] = False,
    inside: Annotated[bool, Parameter(negative=())] = False,
    corpus: Annotated[str | None, Parameter(show_default=False)] = None,
    tokenizer: Tokenizer = None,
    settings: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative=(),
            show_default=False,
            help="Change another setting, such as --set tune.rank=16 or tune.max_length=64. May be repeated.",
        ),
    ] = (),
    device: Device = None,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Tune a model for a labelled task, with several seeds: plain Hugging Face folders, and how well they do.

    The learning rate is the one of a few that does best on dev with the first seed; test is looked at once.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        dev: Examples that the learning rate is chosen on. Default: split off training.
        test: Examples that are reported. Default: split off training.
        shape: What is asked. Default: read off the file.
        as_text: Let the model write the answer in words, as T5 does: any shape but tagging becomes generation.
        second_column: Column of the second text of a pair, in a table.
        label_column: Column of the label, in a table (between tabs without a header its number, from 0); with --shape
            generation, of the text to write.
        question_column: Column of what is asked about the text, in a table; with a label, the first text of a pair.
        choices_column: Column of the answers to choose from, lists of texts.
        answers_column: Column of the answers that stand in the text, lists of texts.
        answer_starts_column: Column of the characters at which they begin, lists of numbers. Default: by usual names.
        words_column: Column of the words of a sentence, lists, in a dataset (hf:NAME); --tags is that of their tags.
        tags: Column of the words' tags, where there are several.
        multi: An example may have several labels, joined by |, or none.
        method: All weights; the head on a frozen body; head and upper layers; lower layers slower; low-rank adapters.
        rates: Learning rates to choose among, separated by commas. Default: four that suit the method.
        seeds: Of head, data order and dropout, separated by commas. Default: 0,1,2.
        examples: So many to train on, the same ones for every model, of classes with each one's share; 0 takes all.
        epochs: Passes over the training examples (of frozen features --set tune.head_epochs, 40).
        controls: Tune on shuffled labels too, and the same architecture with random weights.
        from_scratch: Tune the same architecture with random weights too.
        inside: Tell what tuning changed in layers and heads, what is forgotten and who learned the task; a report.
        corpus: With --inside: text that the pretraining loss is taken on, to tell what is forgotten, a name or a file.
            Default: the task's test texts; of a task of texts to write none.
    """
    with working(session):
        from infoflow.adaptation import TuneConfig, leakage, load_task, make_task
        from infoflow.adaptation import as_text as written
        from infoflow.models import load_model
        from infoflow.results import RunFolder
        from infoflow.studies import removed_if_refused
        from infoflow.training import trained_objective

        folder = run_folder(out, run_name("tune", model, *([task] if task else [])))
        config = TuneConfig(
            method=method,
            learning_rates=numbers_in("--rates", rates, float),
            seeds=numbers_in("--seeds", seeds or ("0,1,2",), int),
            examples=examples,
            epochs=epochs,
            device=device or "auto",
        )
        config = changed(config, "tune", settings)
        _check_inside(inside, corpus, config)
        columns = {"text": text_column, "second": second_column, "label": label_column}
        columns |= {"question": question_column, "choices": choices_column, "answers": answers_column}
        columns |= {"answer_starts": answer_starts_column, "words": words_column}
        data = load_task(
            task or _name(train),
            train=train,
            dev=dev,
            test=test,
            shape=shape,
            tags=tags,
            multi=multi,
            **{name: column for name, column in columns.items() if column},
        )
        data = written(data) if as_text else data
        run = RunFolder(folder)
        _check_kind(run)
        facts = _facts(model, data, config)
        with removed_if_refused(run):
            if not run.path.exists():  # else what lies there stays until this call is known not to be refused
                run.update(**facts)
            loaded = load_model(model, tokenizer, device or "auto")
            arms = _arms(loaded, config, controls, from_scratch)
            trained = trained_objective(model)
            asked = make_task(data, trained=trained)
            looks = _looks(arms, data, asked, folder, trained, corpus) if inside else {}
            tuned = {
                label: _tuned(one, data, asked, each, folder, label, looks.get(label))
                for label, (one, each) in arms.items()
            }
        shutil.rmtree(folder / "features", ignore_errors=True)
        trained_on = next(iter(tuned.values())).train
        leaks = leakage(replace(data, train=trained_on), {})
        run.update(**facts)
        tables = _written(run, model, tuned, looks, leaks)
        _show(tuned, data, method)
        _tell_of_leakage(leaks)
        show_path("Models", folder / "models")
        show_path("Tables", tables)
        if inside or (run.path / "report.html").exists():  # one of an earlier call would be about other tables
            from infoflow.report import write_report

            show_path("Report", write_report(run))


def _name(train: str) -> str:
    """The task's name: that of the folder of a file called train, else of the file."""
    path = Path(train)
    stem = path.name.split(".")[0] if not train.startswith("hf:") else train.split(":")[1].rpartition("/")[2]
    return path.absolute().parent.name if stem in ("train", "training") else stem or path.absolute().name


def _check_kind(run: "RunFolder") -> None:
    from infoflow.foundation import UserError

    if (kind := run.read().get("kind", _KIND)) != _KIND:
        raise UserError(f"{run.path} was written by infoflow {kind}. Choose another --out.")


def _facts(model: str, data: "TaskData", config: "TuneConfig") -> dict[str, Any]:
    """What run.json says."""
    from infoflow.foundation import provenance

    plan = {"model": model, "task": data.name, "left_out": dict(data.left_out), "tune": config.key()}
    return {"kind": _KIND, "title": f"Tuned for {data.name}", "plan": plan, "provenance": provenance()}


def _check_inside(inside: bool, corpus: str | None, config: "TuneConfig") -> None:
    from infoflow.foundation import UserError

    if inside and config.method == "frozen":
        raise UserError(
            "--inside tells what tuning changed, and a frozen body does not change. Leave out one of the two."
        )
    if corpus and not inside:
        raise UserError("--corpus is the text on which --inside tells what is forgotten. Give --inside too.")


def _arms(
    model: "Model", config: "TuneConfig", controls: bool, from_scratch: bool
) -> "dict[str, tuple[Model, TuneConfig]]":
    """What is tuned, and how: the model, and what it is compared with."""
    from infoflow.studies import untrained

    arms = {"": (model, config)}
    if controls:
        arms["shuffled labels"] = (model, replace(config, control="shuffled-labels"))
    if controls or from_scratch:
        arms[_UNTRAINED] = (untrained(model, seed=0), config)
    return arms


def _looks(
    arms: "dict[str, tuple[Model, TuneConfig]]",
    data: "TaskData",
    task: "AbstractTask",
    folder: Path,
    trained: "AbstractObjective | None",
    corpus: str | None,
) -> dict[str, InsideTuning]:
    """What is looked at of each arm."""
    from infoflow.corpus import load_corpus

    text = load_corpus(corpus) if corpus else None
    return {
        label: InsideTuning(
            model=model,
            data=data,
            task=task,
            config=config,
            folder=folder / "allocation" / _home(label) / data.name / config.way,
            trained=trained,
            text=text,
        )
        for label, (model, config) in arms.items()
    }


def _tuned(
    model: "Model",
    data: "TaskData",
    task: "AbstractTask",
    config: "TuneConfig",
    folder: Path,
    label: str,
    look: InsideTuning | None,
) -> "Tuned":
    from infoflow.adaptation import tune as tuned

    hooks = look.hooks if look else None
    return tuned(model, data, config, folder / _home(label), task=task, hooks=hooks, features=folder / "features")


def _home(label: str) -> str:
    """The folder of an arm's models."""
    return _UNTRAINED if label == _UNTRAINED else "models"


def _written(
    run: "RunFolder",
    model: str,
    tuned: "dict[str, Tuned]",
    looks: dict[str, InsideTuning],
    leaks: "pd.DataFrame",
) -> Path:
    """Scores and answers, what of test stands in training, then what was looked at of all, in place of the tables of an
    earlier call; returns their folder."""
    from infoflow.adaptation import INSIDE, TASK_ANSWERS, TASK_LEAKAGE, TASK_SCORES, TUNING_ALLOCATION

    run.tables.remove([*INSIDE, TUNING_ALLOCATION.name])
    _write(
        run, model, {label: [(TASK_SCORES, one.scores), (TASK_ANSWERS, one.answers)] for label, one in tuned.items()}
    )
    folder = run.tables.write(leaks, TASK_LEAKAGE).parent
    _write(run, model, {label: list(look.tables(tuned[label])) for label, look in looks.items()})
    return folder


def _write(run: "RunFolder", model: str, of_arms: "dict[str, list[tuple[TableSchema, pd.DataFrame]]]") -> None:
    """The tables of all arms, under the name of the model that each began from."""
    import pandas as pd

    from infoflow.flow import MODEL

    found: dict[str, tuple[TableSchema, list[pd.DataFrame]]] = {}
    for label, tables in of_arms.items():
        name = f"{model} ({_UNTRAINED})" if label == _UNTRAINED else model
        for schema, frame in tables:
            found.setdefault(schema.name, (schema, []))[1].append(frame.assign(model=name))
    for schema, frames in found.values():
        run.tables.write(pd.concat(frames, ignore_index=True), schema.with_keys(MODEL))


# -- tables -----------------------------------------------------------------------------------------------------------


def _show(tuned: "dict[str, Tuned]", data: "TaskData", method: str) -> None:
    """Print the scores on test, the mean over seeds, and each seed's main metric."""
    first = next(iter(tuned.values()))
    sizes = f"{len(first.train):,} to train, {len(data.dev):,} to choose, {len(data.test):,} to test"
    columns = ["metric", *(["tuned"] if len(tuned) > 1 else []), "test [95% interval]", "baseline", "dev", "rate"]
    metrics = list(dict.fromkeys(first.scores["metric"]))
    rows = [
        [metric, *([label or "model"] if len(tuned) > 1 else []), *_cells(one.scores, metric)]
        for metric in metrics
        for label, one in tuned.items()
    ]
    num = len(first.models)
    seeds = "one seed" if num == 1 else f"mean over {num} seeds"
    show_table(columns, rows, f"{data.name} ({data.shape}), {seeds}: {sizes}")
    show()
    chosen = first.scores[first.scores["main"]]
    listed = [
        [str(row["tuning_seed"]), row["part"], row["metric"], estimate(row["value"], row["low"], row["high"])]
        for row in chosen.to_dict("records")
    ]
    show_table(["seed", "part", "metric", "value [95% interval]"], listed, "Each seed")
    show()
    _tell_of_guesses(first.scores, method)


def _tell_of_guesses(scores: "pd.DataFrame", method: str) -> None:
    """Say so where the main metric on test is not above what is reached without a model."""
    longer = "--set tune.head_epochs" if method == "frozen" else "--epochs"
    from infoflow.results import score_bounds

    metric = scores[scores["main"]]["metric"].iloc[0]
    value, low, high, guess = _on_test(scores, metric)
    if low <= guess < score_bounds(metric)[1]:  # nothing is better than a guess that is always right
        show(
            f"No better than the best guess without a model: {metric} {estimate(value, low, high)}, the guess "
            f"{guess:.3f}.\nTune longer ({longer}), at other rates (--rates), or on more examples."
        )
        show()


def _tell_of_leakage(leaks: "pd.DataFrame") -> None:
    """Say how many test texts were trained on, the same or nearly so."""
    texts, same, near = (int(leaks[name].iloc[0]) for name in ("texts", "same", "near"))
    stand = "stands" if same == 1 else "stand"
    show(f"{same:,} of {texts:,} test texts also {stand} in training, {near - same:,} more one word apart.")


def _cells(scores: "pd.DataFrame", metric: str) -> list[str]:
    value, low, high, guess = _on_test(scores, metric)
    own = scores[scores["metric"] == metric]
    rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(own["learning_rate"]))
    dev = own[own["part"] == "dev"]["value"].mean()
    return [estimate(value, low, high), f"{guess:.3f}", f"{dev:.3f}", rates]


def _on_test(scores: "pd.DataFrame", metric: str) -> tuple[float, float, float, float]:
    """The mean of a metric over seeds, its interval, and the guess that it is compared with."""
    test = scores[(scores["metric"] == metric) & (scores["part"] == "test")]
    return *_over_seeds(test.to_dict("records"), metric), float(test["baseline"].mean())


def _over_seeds(rows: Sequence[dict[str, Any]], metric: str) -> tuple[float, float, float]:
    """The mean of a metric with its interval over seeds and examples; of one seed its own."""
    import numpy as np

    from infoflow.foundation import interval_over_seeds
    from infoflow.results import score_bounds

    if len(rows) == 1:
        return rows[0]["value"], rows[0]["low"], rows[0]["high"]
    values = np.array([row["value"] for row in rows])
    replicates = np.array([row["replicates"] for row in rows], dtype=float)
    own = [(row["low"], row["high"]) for row in rows]
    ends = interval_over_seeds([(row["tuning_seed"],) for row in rows], values, replicates, own)
    least, most = score_bounds(metric)
    return float(values.mean()), max(ends.low, least), min(ends.high, most)
