"""`infoflow train`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from ._options import limited
from ._session import (
    Device,
    DocumentColumn,
    Documents,
    Lines,
    Out,
    Seed,
    Session,
    Settings,
    TextColumn,
    TranslationColumn,
    run_folder,
    working,
)
from ._settings import with_settings
from ._show import show_path, show_table

NewTokens = Annotated[int, Parameter(converter=limited("CountOrNone"))]


def train(
    objective: str,
    /,
    *,
    plan: str = "quick",
    start: str | None = None,
    extend_vocabulary: NewTokens = 0,
    corpus: str | None = None,
    text_column: TextColumn = None,
    translation_column: TranslationColumn = None,
    document_column: DocumentColumn = None,
    documents: Documents = False,
    lines: Lines = "sentences",
    checkpoints: str | None = None,
    settings: Settings = (),
    seed: Seed = 0,
    device: Device = None,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Train one model as a study would: a plain Hugging Face folder.

    Args:
        objective: causal-lm, masked-lm, translation, spanbert, electra, bart, ... (docs/objectives.md lists all).
        plan: Source of size, data and schedule: a TOML file or a preset (quick, laptop, paper, replicate, zoo,
            architectures, adaptation, retrieval).
        start: A model to continue training instead of a new one: from a study, or any Hugging Face model of a class
            that fits the objective. Its tokenizer is kept, optimiser and warm-up restart; the model is saved in
            OUT/model. For two phases, run the command twice.
        extend_vocabulary: With --start: number of tokens to learn on the corpus and add to the vocabulary; each
            starts as the mean of its old pieces.
        corpus: Name or file of a corpus that replaces the plan's.
        checkpoints: Updates whose weights are kept for measuring: log:20, linear:8, every:100, powers, 0,10,500, or
            several of these joined by +. Default: log:16+linear:8. The first and the last are always kept.
        seed: Seed of initialisation, data order and noise.
    """
    with working(session):
        from infoflow.studies import StudyPlan, train_model

        changes = [f"training.device={device}"] if device else []
        chosen = with_settings(StudyPlan.load(plan), [*settings, *changes])
        named = {"name": corpus, "text_column": text_column, "translation_column": translation_column}
        named |= {"document_column": document_column, "documents": documents}
        named |= {"lines": lines} if lines != "sentences" else {}
        given = {name: value for name, value in named.items() if value}
        chosen = replace(chosen, corpus=replace(chosen.corpus, **given))
        if checkpoints is not None:
            chosen = replace(chosen, checkpoints=replace(chosen.checkpoints, schedule=checkpoints))
        if start is None:
            _refuse_alone(extend_vocabulary)
            trained = train_model(objective, chosen, seed, run_folder(out, objective))
        else:
            _refuse_checkpoints(checkpoints)
            folder = run_folder(out, f"further/{objective}")
            trained = _train_further()(objective, start, chosen, seed, folder, extend_vocabulary)
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"] for name, value in trained.facts.items()
        ]
        show_table(["training", "value"], rows)
        show_path("Model", trained.folder)
        if trained.checkpoints is not None:
            show_path("Checkpoints", trained.checkpoints)


def _train_further() -> Callable[..., Any]:
    from infoflow._subjects import provided
    from infoflow.foundation import UserError

    if found := provided("stages", "train_further"):
        return found[0]
    raise UserError("--start must be left out: this installation has no infoflow.subjects.adaptation.")


def _refuse_alone(extend_vocabulary: int) -> None:
    from infoflow.foundation import UserError

    if extend_vocabulary:
        raise UserError(
            "--extend-vocabulary adds tokens to an existing model, so it needs --start. A new model has the "
            "plan's corpus.vocabulary tokens: write --set corpus.vocabulary=8000."
        )


def _refuse_checkpoints(checkpoints: str | None) -> None:
    from infoflow.foundation import UserError

    if checkpoints is not None:
        raise UserError("--checkpoints only applies to new models, not to --start. Leave it out.")
