"""`infoflow doctor`."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from ._analyze import Measuring
from ._session import Session, show, show_table, show_text, working

if TYPE_CHECKING:
    from infoflow.studies import AnalyzeOptions

_MODELS = 6  # maximum number of models in the hub's cache that are named
_PATIENCE = 5  # seconds
_DISK_OF_A_STUDY = 2e9
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def doctor(
    model: str | None = None,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    measuring: Measuring = Measuring(),  # noqa: B008 (frozen)
    session: Session = Session(),  # noqa: B008 (frozen)
) -> int:
    """Check this machine, or say what analyzing a model will take: bytes, passes and seconds of each measure.

    The options are those of analyze, and need MODEL: to see what an analysis will take, write doctor in place of
    analyze.

    Args:
        model: A folder that save_pretrained wrote, or a name on the model hub. Its weights are not read or fetched.
        only: Tables to estimate, separated by commas. Default: all.
    """
    if model is not None:
        with working(session):
            _show_estimates(model, measuring.options(only))
        return 0
    if only or measuring != Measuring():
        from infoflow.foundation import UserError

        raise UserError("These options need a model to estimate: infoflow doctor MODEL --corpus CORPUS.")
    checks = examine()
    show_table(["state", "part", "found"], [[check.state, part, check.found] for part, check in checks.items()])
    for part, check in checks.items():
        if check.advice:
            advice, *command = check.advice.split("\n")
            show()
            show_text(f"{part}: {advice}")
            for line in command:
                show(line)
    return int(any(check.state == "broken" for check in checks.values()))


def _show_estimates(model: str, options: "AnalyzeOptions") -> None:
    from infoflow.foundation import available_memory, said_size
    from infoflow.studies import estimated

    counts, weights, found = estimated(model, options)
    rows = [[one.table, f"{one.passes:.3g}", said_size(one.bytes), _duration(one.seconds)] for one in found]
    title = f"{model}: {counts.tokens:,} tokens of {counts.sentences:,} sentences"
    show_table(["table", "passes", "memory", "time"], rows, title)
    for texts in sorted({one.texts for one in found} - {counts.sentences}):
        tables = ", ".join(dict.fromkeys(one.table for one in found if one.texts == texts))
        show_text(f"{counts.sentences - texts:,} of {counts.sentences:,} texts are too long for {tables}.")
    total = sum(one.seconds for one in found)
    free = available_memory()
    show(
        f"\nWeights: {said_size(weights)} in memory{'' if free is None else f', of {said_size(free)} free'}.\n"
        f"This machine multiplies at {counts.rate / 1e9:,.0f} GFLOP/s in layers of width {counts.width}.\n"
        f"Together: about {_duration(total)}, if nothing else runs; expect half to two and a half times that."
        + (" The untrained control takes as long again (--no-control leaves it out)." if options.control else "")
    )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


class Examined(NamedTuple):
    state: Literal["ok", "absent", "broken"]  # absent: infoflow works without it, with fewer features
    found: str
    advice: str = ""


def examine() -> dict[str, Examined]:
    """Run all checks; a check that raises an error counts as broken."""
    return {part: _guarded(look) for part, look in _PARTS.items()}


def _guarded(look: Callable[[], Examined]) -> Examined:
    try:
        return look()
    except Exception as error:  # whatever is wrong with this part, the other checks still run
        return Examined("broken", f"{type(error).__name__}: {error}".splitlines()[0])


def _libraries() -> Examined:
    from infoflow.foundation import install_command, requirements, version

    needed = requirements()
    if absent := [one for one in needed if version(re.split(r"[^\w.-]", one)[0]) == "absent"]:
        return Examined("broken", f"without {', '.join(absent)}", install_command(absent))
    names = ("infoflow", "torch", "transformers", "datasets", "accelerate", "numpy")
    return Examined("ok", ", ".join(f"{name} {version(name)}" for name in names))


def _threads() -> Examined:
    import torch

    from infoflow.foundation import available_cores

    cores, threads = available_cores(), torch.get_num_threads()
    found = f"{threads} of torch on {cores} cores; OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}"
    advice = "" if threads <= cores else f"More threads than cores slow small models down: use --threads {cores}."
    return Examined("ok", found, advice)


def _blas() -> Examined:
    import torch
    from threadpoolctl import threadpool_info

    pools = {f"{pool['internal_api']} {pool.get('version') or ''}".strip() for pool in threadpool_info()}
    torchs = "MKL" if torch.backends.mkl.is_available() else "its own"
    return Examined("ok", f"torch: {torchs}; loaded: {', '.join(sorted(pools)) or 'none'}")


def _bf16() -> Examined:
    import torch

    capabilities = torch.cpu.get_capabilities()
    units = [name for name in ("avx512_bf16", "amx_bf16", "bf16") if capabilities.get(name)]
    if units:
        return Examined("ok", ", ".join(units))
    return Examined("absent", "none", "Training on this CPU stays in float32; it is slower.")


def _gpu() -> Examined:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Examined("ok", ", ".join(names))
    if torch.backends.mps.is_available():
        return Examined("ok", "Apple (--device mps)")
    if shutil.which("nvidia-smi"):
        advice = "torch cannot use the NVIDIA driver: install a CUDA build of torch (docs/background/settings.md)."
        return Examined("absent", f"none usable by torch {torch.__version__}", advice)
    return Examined("absent", "none; everything runs on the CPU")


def _browser() -> Examined:
    paths = [path for name in _BROWSERS if (path := shutil.which(name))]
    if paths:
        return Examined("ok", paths[0])
    advice = "Reports and figures do not need it; only their browser tests are skipped."
    return Examined("absent", "no Chromium", advice)


def _cache() -> Examined:
    from infoflow.corpus import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = "Set INFOFLOW_CACHE to a writable folder."
        return Examined("broken", f"{folder}: {error.strerror}", advice)
    return Examined("ok", f"{folder} is writable; {_gigabytes(folder)}")


def _disk() -> Examined:
    from infoflow.corpus import cache_folder
    from infoflow.foundation import said_size

    here, cache = Path.cwd(), cache_folder()
    free = {path: shutil.disk_usage(_existing(path)).free for path in (here, cache)}
    found = ", ".join(f"{said_size(size)} free at {path}" for path, size in free.items())
    advice = "" if min(free.values()) > _DISK_OF_A_STUDY else "A study of small models takes about 2 GB."
    return Examined("ok", found, advice)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _model_hub() -> Examined:
    from huggingface_hub import constants, get_session

    advice = "Models are read from folders and .gguf files; names on the model hub need a network."
    if constants.HF_HUB_OFFLINE:
        return Examined("absent", "switched off by HF_HUB_OFFLINE", advice)
    try:  # with the client that commands use, which respects proxies
        answer = get_session().head(constants.ENDPOINT, timeout=_PATIENCE, follow_redirects=True)
    except Exception as error:  # the client has exceptions of its own
        return Examined("absent", f"no answer ({type(error).__name__})", advice)
    if answer.status_code >= 400:
        return Examined("absent", f"answers with code {answer.status_code}", advice)
    return Examined("ok", "answers")


def _drawing() -> Examined:
    """Whether a small figure can be drawn in each file format; none needs a browser."""
    import pandas as pd

    from infoflow.report import plot

    figure = plot(pd.DataFrame({"layer": [0, 1], "value": [0.0, 1.0]}))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"figure.{kind}" for kind in ("svg", "png", "pdf")]
        for path in paths:
            figure.save(path)
        found = ", ".join(path.suffix[1:] for path in paths if path.stat().st_size)
    return Examined("ok", f"a figure was written as {found}")


def _hub_cache() -> Examined:
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    models = sorted(path.name for path in folder.glob("models--*"))
    if not models:
        return Examined("ok", f"{folder}: none yet")
    names = ", ".join(name.removeprefix("models--").replace("--", "/") for name in models[:_MODELS])
    more = f", and {len(models) - _MODELS} more" if len(models) > _MODELS else ""
    return Examined("ok", f"{folder}: {_gigabytes(folder)}; {names}{more}")


def _gigabytes(folder: Path) -> str:
    from infoflow.foundation import said_size

    return said_size(
        sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Extra:
    """An optional dependency: an extra of infoflow, or a separate package."""

    name: str
    packages: dict[str, str]  # name on the package index → name of the module
    gives: str
    otherwise: str = ""  # what infoflow does without it
    of_infoflow: bool = True

    @property
    def command(self) -> str:
        from infoflow.foundation import install_command, requirements

        return install_command(requirements(self.name) if self.of_infoflow else list(self.packages))


def _looker(extra: Extra) -> Callable[[], Examined]:
    def look() -> Examined:
        from infoflow.foundation import version

        absent = [package for package, module in extra.packages.items() if find_spec(module) is None]
        if not absent:
            versions = ", ".join(f"{package} {version(package)}" for package in extra.packages)
            return Examined("ok", f"{versions}: {extra.gives}")
        instead = f"; without it {extra.otherwise}" if extra.otherwise else ""
        found = f"without {', '.join(absent)}"
        return Examined("absent", found, f"{extra.gives}{instead}.\n  {extra.command}")

    return look


EXTRAS = (
    Extra(
        name="explore",
        packages={"starlette": "starlette", "uvicorn": "uvicorn", "h11": "h11"},
        gives="the live explorer, infoflow explore MODEL",
    ),
    Extra(name="retrieval", packages={"bm25s": "bm25s"}, gives="lexical passage search in [retrieval]"),
    Extra(
        name="faiss",
        packages={"faiss-cpu": "faiss"},
        gives="faster nearest-neighbour search (faiss), and --kind hnsw or ivf for passages",
        otherwise="torch searches exactly",
    ),
    Extra(name="gguf", packages={"gguf": "gguf"}, gives=".gguf models"),
    Extra(name="torchao", packages={"torchao": "torchao"}, gives="models in 8 bits, --quantize int8"),
    Extra(name="parse", packages={"spacy": "spacy"}, gives="syntax trees for your own sentences, --parse"),
    Extra(
        name="maps",
        packages={"openTSNE": "openTSNE"},
        gives="t-SNE token maps by openTSNE",
        otherwise="scikit-learn draws them",
    ),
    Extra(name="cluster", packages={"cryptography": "cryptography"}, gives="studies on several machines, --cluster"),
    Extra(
        name="notebook",
        packages={"jupyterlab": "jupyterlab"},
        gives="figures and models shown in notebooks",
        of_infoflow=False,
    ),
)
_PARTS: dict[str, Callable[[], Examined]] = {
    "Python": lambda: Examined("ok", f"{sys.version.split()[0]} in {sys.prefix}"),
    "libraries": _libraries,
    "threads": _threads,
    "BLAS": _blas,
    "bf16 units": _bf16,
    "GPU": _gpu,
    "browser": _browser,
    "cache": _cache,
    "disk": _disk,
    "model hub": _model_hub,
    "models fetched": _hub_cache,
    "drawing": _drawing,
    **{f"extra {extra.name}": _looker(extra) for extra in EXTRAS},
}
