"""A run on the model hub: its report as a static Space, and its tables as a data set with a card."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    DatasetCardData,
    HfApi,
    SpaceCardData,
    constants,
    get_token,
)
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    validate_repo_id,
)

from infoflow.corpus import card_facts
from infoflow.foundation import UserError, as_written, current_display, in_markdown, said_size, version
from infoflow.results import RunFolder, StoredTable, write_table

from ._page import write_report
from ._shown_run import ShownRun

_TAG = "infoflow"  # marks the cards of what infoflow wrote
_HUB = "hf:"
_WORDS = {"space": "Space", "dataset": "data set"}
_Kind = Literal["space", "dataset"]


def upload_run(run: RunFolder, to: str, *, public: bool = False, anonymous: bool = False) -> list[str]:
    """Upload the report to the Space `to`, and the tables to the data set of the same name; returns both addresses.

    A later upload replaces what an earlier one wrote. New repositories are private unless `public`; existing ones keep
    their visibility.

    Raises:
        UserError: `to` is not hf:USER/NAME, there is no token, the hub refuses, or a repository holds something else.
    """
    name = _name_in(to)
    api = HfApi(endpoint=constants.ENDPOINT)
    with _asking(api):
        api.whoami()  # refuses an invalid token, even where reading needs no token
        places = [_Place.of(api, name, kind, public) for kind in _WORDS]
    shown = ShownRun(run.path, anonymous)
    page = write_report(run, anonymous)
    with TemporaryDirectory() as folder:
        tables = _tables(run, shown, Path(folder))
        files = [
            {"README.md": _space_card(shown, name).encode(), "index.html": page},
            {
                "README.md": _data_card(shown, name, tables).encode(),
                **{f"tables/{_plain(one)}.parquet": path for one, (path, _) in tables.items()},
            },
        ]
        report, data = places
        current_display().note(
            f"Uploading to {api.endpoint}: the report ({_size(files[0])}) as the {report}, and {len(tables)} tables "
            f"({_size(files[1])}) as the {data}."
        )
        for place, contents in reversed(list(zip(places, files, strict=True))):  # the Space links to the data set
            with _asking(api):
                place.write(contents)
    return [place.address for place in places]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A repository, which may not exist yet."""

    api: HfApi
    name: str
    kind: _Kind
    private: bool
    files: tuple[str, ...]

    @classmethod
    def of(cls, api: HfApi, name: str, kind: _Kind, public: bool) -> "_Place":
        """The repository, after checking that this run may be written there."""
        try:
            info = api.repo_info(name, repo_type=kind)
        except RepositoryNotFoundError:
            return cls(api=api, name=name, kind=kind, private=not public, files=())
        files = tuple(one.rfilename for one in info.siblings or ())
        card = getattr(info, "card_data", None)
        if set(files) - {".gitattributes"} and _TAG not in ((card and card.get("tags")) or ()):
            raise UserError(
                f"The {_WORDS[kind]} {name} holds something that infoflow did not write. Choose another name, or "
                "delete it on the hub."
            )
        if not info.private and not public:
            raise UserError(
                f"The {_WORDS[kind]} {name} is public, so everybody could read this run. Add --public, or choose "
                "another name."
            )
        return cls(api=api, name=name, kind=kind, private=bool(info.private), files=files)

    def __str__(self) -> str:
        return f"{'private' if self.private else 'public'} {_WORDS[self.kind]} {self.name}"

    @property
    def address(self) -> str:
        return f"{self.api.endpoint}/{self.kind}s/{self.name}"

    def write(self, contents: dict[str, Path | bytes]) -> None:
        """Write the files in one commit, and delete tables of earlier uploads."""
        sdk = "static" if self.kind == "space" else None
        self.api.create_repo(self.name, repo_type=self.kind, private=self.private, space_sdk=sdk, exist_ok=True)
        gone = [path for path in self.files if re.fullmatch(r"tables/[^/]+\.parquet", path) and path not in contents]
        added = [CommitOperationAdd(path, file) for path, file in contents.items()]
        self.api.create_commit(
            self.name,
            [*added, *(CommitOperationDelete(path) for path in gone)],
            commit_message=f"Upload by infoflow {version('infoflow')}",
            repo_type=self.kind,
        )


def _name_in(to: str) -> str:
    """USER/NAME; checks, without the network, that something could be uploaded there."""
    name = to.removeprefix(_HUB)
    try:
        validate_repo_id(name)
        is_name = to.startswith(_HUB) and name.count("/") == 1
    except HFValidationError:
        is_name = False
    if not is_name:
        raise UserError(
            "--to must be hf:USER/NAME: your name or an organisation's on the hub, and a name of letters, digits, "
            f"'-', '_' and '.' (at most 96 characters in all). Got {as_written(to)}."
        )
    if constants.HF_HUB_OFFLINE:
        raise UserError("--to uploads to the hub, but HF_HUB_OFFLINE is set. Unset it, or leave out --to.")
    if not get_token():
        raise UserError(
            "--to needs a hub token with write access, and none was found. Run `hf auth login`, or set HF_TOKEN "
            f"(a token: {constants.ENDPOINT}/settings/tokens)."
        )
    return name


@contextmanager
def _asking(api: HfApi) -> Iterator[None]:
    """Turn errors of the hub and of its client into one message, and hide the client's progress bars."""
    hidden = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client's versions have different classes for failed connections
        inner = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error  # of one of the files
        status = getattr(getattr(inner, "response", None), "status_code", None)
        lines = str(getattr(inner, "server_message", None) or inner).strip().splitlines() or [type(inner).__name__]
        advice = (
            "Use a token that may write there (`hf auth login`, or HF_TOKEN)."
            if status in (401, 403)
            else "Check the network and HF_ENDPOINT, and run the command again: it replaces what was uploaded."
        )
        code = f" (HTTP {status})" if status else ""
        raise UserError(
            f"The hub at {api.endpoint} did not accept this{code}: {lines[0].rstrip('.')}.\n{advice}"
        ) from error
    finally:
        if not hidden:
            enable_progress_bars()


def _tables(run: RunFolder, shown: ShownRun, folder: Path) -> dict[str, tuple[Path, StoredTable]]:
    """Each table and its file: the original, or a copy in `folder` without the file names that a report hides."""
    found = {name: (run.path / "tables" / f"{name}.parquet", run.tables.stored(name)) for name in run.tables}
    for number, table in enumerate(shown.renamed_tables()):
        path = write_table(folder / f"{number}.parquet", table.frame, table.schema, table.provenance)
        found[table.schema.name] = (path, table)
    return found


def _plain(name: str) -> str:
    """A table's name as part of a path and of a path pattern."""
    return re.sub(r"[^\w.-]+", "-", name)


def _size(files: dict[str, Path | bytes]) -> str:
    return said_size(sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in files.values()))


def _title(shown: ShownRun) -> str:
    return " ".join(str(shown.read().get("title") or shown.path.name).split())


def _space_card(shown: ShownRun, name: str) -> str:
    title = _title(shown)
    data = SpaceCardData(title=title, sdk="static", app_file="index.html", tags=[_TAG], datasets=[name])
    text = f"The report of a run of infoflow. Its numbers: [tables]({constants.ENDPOINT}/datasets/{name})."
    return f"---\n{data.to_yaml()}\n---\n\n# {in_markdown(title)}\n\n{text}\n"


def _data_card(shown: ShownRun, name: str, tables: dict[str, tuple[Path, StoredTable]]) -> str:
    """A card with one configuration per table, and columns described as in their declarations."""
    manifest = shown.read()
    corpus = str((manifest.get("corpus") or {}).get("name", ""))
    known: dict[str, Any] = {one: value for one, value in card_facts(corpus).items() if one != "datasets"}
    configs = [{"config_name": _plain(one), "data_files": f"tables/{_plain(one)}.parquet"} for one in tables]
    data = DatasetCardData(pretty_name=_title(shown), tags=[_TAG], configs=configs, **known)
    first = next(iter(tables))
    lines = [
        *("---", data.to_yaml(), "---", ""),
        *(f"# {in_markdown(_title(shown))}", ""),
        f"Tables of a run of infoflow (`{manifest.get('kind', 'analyze')}`). Their figures: "
        f"[report]({constants.ENDPOINT}/spaces/{name}). Some may quote sentences of the corpus"
        f"{f' {in_markdown(corpus)}' if corpus else ''}, whose licence applies to them.",
        *("", "```python", "from datasets import load_dataset", ""),
        *(f'table = load_dataset("{name}", "{_plain(first)}", split="train").to_pandas()', "```", ""),
    ]
    for one, (_, table) in tables.items():
        lines += [f"## {in_markdown(one)}", "", in_markdown(table.schema.description), ""]
        lines += [f"{len(table.frame):,} rows.", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        cells = [[in_markdown(text) for text in (c.name, c.dtype, c.unit, c.description)] for c in table.schema.columns]
        lines += [*(f"| {' | '.join(row)} |" for row in cells), ""]
    return "\n".join(lines)
