"""`patch`: a model's tables of patching in a run folder with a report."""

from collections.abc import Sequence
from pathlib import Path

from infoflow.corpus import Corpus
from infoflow.flow import accepted_model
from infoflow.foundation import digest, name_of
from infoflow.models import Model
from infoflow.report import check_output
from infoflow.results import RunFolder
from infoflow.studies import Run
from infoflow.studies._analyze import write_model_run
from infoflow.studies._study import removed_if_refused

from .measures import PatchPair, patch_effects, read_pairs
from .measures._parts import DEFAULT
from .measures._tables import TABLES

_KIND = "patch"


def patch(
    model: Model | Path | str,
    pairs: Sequence[PatchPair] | Path | str,
    out: Path | str = "runs/patch",
    *,
    parts: Sequence[str] = DEFAULT,
    steps: int = 5,
    limit: int | None = 100,
) -> Run:
    """Patch activations between the inputs of pairs, and write tables and a report.

    >>> patch("runs/quick/models/causal-lm/seed-0", "grammar:200").tables["patching_effect"]  # doctest: +SKIP

    Args:
        model: A loaded model, a folder, a .gguf file, or a name.
        pairs: A file, `grammar:N`, or pairs; see `read_pairs`.
        out: The run folder.
        parts: Kinds of parts, as for `patch_effects`.
        steps: Number of steps of the integral.
        limit: Maximum number of pairs, chosen by hash; None: all.

    Raises:
        UserError: As for `read_pairs` and `patch_effects`, or `out` holds another kind of run.
    """
    run = RunFolder(out)
    check_output(run, _KIND)
    read = read_pairs(pairs) if isinstance(pairs, str | Path) else list(pairs)
    loaded = accepted_model(model)
    with removed_if_refused(run):
        tables = patch_effects(loaded, read, parts=parts, steps=steps, limit=limit)
        run.tables.clear()
        name = name_of(pairs) if isinstance(pairs, str | Path) else "pairs"
        corpus = Corpus.from_sentences(list(dict.fromkeys(one.clean for one in read)), name)
        write_model_run(
            run,
            loaded,
            corpus,
            {schema: tables[schema.name] for schema in TABLES},
            kind=_KIND,
            title=f"What carries the difference in {loaded.name}",
            plan={"pairs": digest([str(one) for one in read]), "parts": list(parts), "steps": steps, "limit": limit},
        )
    return Run(run)
