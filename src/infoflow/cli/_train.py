"""`infoflow train`."""

from dataclasses import replace

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


def train(
    objective: str,
    /,
    *,
    plan: str = "quick",
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
        plan: Where its size, data, schedule come from: a TOML file or a preset (quick, laptop, paper, replicate, zoo,
            architectures).
        corpus: What to train on instead of the plan's corpus: a name or a file.
        checkpoints: Updates whose weights are kept, for measuring: log:20, linear:8, every:100, powers, 0,10,500, or
            some of these joined by +; default is log:16+linear:8. The first and the last are always among them.
        seed: Initialisation, data order and noise.
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
        trained = train_model(objective, chosen, seed, run_folder(out, objective))
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"] for name, value in trained.facts.items()
        ]
        show_table(["training", "value"], rows)
        show_path("Model", trained.folder)
        if trained.checkpoints is not None:
            show_path("Checkpoints", trained.checkpoints)
