"""Names of models on the hub: `REPOSITORY`, or `REPOSITORY@REVISION` for a branch, tag or commit."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name

from infoflow.foundation import UserError, as_written

_SHOWN = 8


def at_revision(name: str) -> tuple[str, str | None]:
    """The parts before and after the last @ of a name; without any, the name and None.

    A file or folder may have such a name too: check for one first.

    >>> at_revision("EleutherAI/pythia-70m@step1000")
    ('EleutherAI/pythia-70m', 'step1000')
    >>> at_revision("bert-base-uncased")
    ('bert-base-uncased', None)
    """
    before, at, behind = name.rpartition("@")
    return (before, behind) if at else (name, None)


def named_at(source: object, revision: str) -> str:
    """The name on the hub with its revision.

    Raises:
        UserError: It is not a name on the hub, or has one already.
    """
    if not isinstance(source, str) or Path(source).expanduser().exists() or at_revision(source)[1] is not None:
        raise UserError(
            "A revision needs a name on the model hub, and must be named once: NAME@REVISION, or revision=. "
            f"Got revision {as_written(revision)} of {as_written(source)}."
        )
    return f"{source}@{revision}"


def hub_arguments(name: Path | str) -> tuple[Path | str, dict[str, Any]]:
    """The first argument of transformers' `from_pretrained`, and the argument for the revision if there is one.

    Raises:
        UserError: The text after the @ is not a revision.
    """
    if isinstance(name, Path):
        return name, {}
    repository, revision = at_revision(name)
    if revision is None:
        return name, {}
    if not repository or not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", revision) or ".." in revision:
        raise UserError(
            f"The @ of a model on the hub must be followed by a branch, tag or commit, such as "
            f"{repository[:80] or 'NAME'}@main. Got {name[:120]}."
        )
    return repository, {"revision": revision}


def cached_revisions(repository: str) -> list[str]:
    """Branches and tags of the repository in the local hub cache, or their commits."""
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
    refs = folder / "refs"
    names = sorted(path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file())
    named = {(refs / name).read_text(encoding="utf-8").strip() for name in names}
    commits = sorted(path.name for path in (folder / "snapshots").glob("*") if path.name not in named)
    return [*names, *commits]


def no_revision(name: str, reason: str) -> UserError:
    """The error if a repository has nothing for the requested revision."""
    repository, revision = at_revision(name)
    found = cached_revisions(repository)
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    here = f"{', '.join(found[:_SHOWN])}{more}" if found else "none of its revisions"
    return UserError(
        f"Revision {revision} of {repository} is not in the cache, and the model hub did not provide it (no such "
        f"revision, no access, or no network): {reason}.\nIn the cache of this machine: {here}. Check the name after "
        "the @, or the network."
    )
