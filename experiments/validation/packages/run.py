"""Do the functions of other packages give the same numbers?

    python experiments/validation/packages/run.py --netrep PATH --resi PATH --transparency PATH --lxt PATH

Makes environments of its own beside the project's (option --environments), installs the packages from PyPI there, and
writes `packages.csv`. A package that is missing gets a row that says why. Clone what PyPI does not have:

    --netrep          github.com/ahwillia/netrep
    --resi            github.com/mklabunde/resi
    --transparency    github.com/facebookresearch/llm-transparency-tool
    --lxt             github.com/rachtibat/LRP-eXplains-Transformers (2.1 of PyPI does not import with transformers 5)
"""

import argparse
import csv
import json
import os
import site
import subprocess
import tempfile
import venv
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("function", "package", "version", "compared", "largest_difference", "tolerance", "agrees", "who_is_right")
OLD_NUMPY = ("numpy<2", "scipy<1.14", "setuptools", "dadapy")
SHARED = ("einops", "fancy-einsum", "loguru", "matplotlib")  # read by sources that are not installed


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A function of a module here, the package that it needs, and where that comes from."""

    function: str
    package: str
    install: str = ""  # what pip installs
    source: str = ""  # option with a folder


COMPARISONS = (
    Comparison(function="similarity.netrep", package="netrep", source="netrep"),
    Comparison(function="similarity.resi", package="ReSi", source="resi"),
    Comparison(function="similarity.rsatoolbox", package="rsatoolbox", install="rsatoolbox"),
    Comparison(function="dimension.scikit_dimension", package="scikit-dimension", install="scikit-dimension"),
    Comparison(function="dimension.dadapy", package="dadapy", source="dadapy"),
    Comparison(function="text_scores.bert_scores", package="bert-score", install="bert-score"),
    Comparison(function="text_scores.minicons", package="minicons", install="minicons"),
    Comparison(function="relevance.eager", package="transformers"),
    Comparison(function="relevance.captum", package="captum", install="captum"),
    Comparison(function="relevance.lxt", package="lxt", source="lxt"),
    Comparison(function="lens.transformer_lens", package="transformer-lens", install="transformer-lens"),
    Comparison(function="lens.hooked_transformer", package="transformer-lens 3", install="transformer-lens"),
    Comparison(function="relevance.transparency", package="LLM Transparency Tool", source="transparency"),
)


class Environments:
    """Two environments and a folder: the project's packages with others added, an old NumPy, TransformerLens 3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python, self.old_python = (folder / name / "bin" / "python" for name in ("main", "old-numpy"))
        self.hooked = folder / "transformer-lens-3"
        for python in (self.python, self.old_python):
            if not python.exists():
                venv.create(python.parents[1], with_pip=True)
        (packages,) = (folder / "main" / "lib").glob("python*/site-packages")
        (packages / "project.pth").write_text(
            "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
        )
        self._constraints = folder / "constraints.txt"
        self._constraints.write_text(
            "".join(f"{d.name}=={d.version}\n" for d in distributions() if d.name and d.name != "infoflow")
        )

    def install(self, *names: str) -> str:
        """Install beside the project's versions, which stay as they are; why not, if it fails."""
        return self._pip(self.python, "--constraint", str(self._constraints), *names)

    def install_old(self) -> str:
        """DADApy, which needs a NumPy before 2."""
        return self._pip(self.old_python, *OLD_NUMPY)

    def install_hooked(self) -> str:
        """TransformerLens 3, which has a forward pass of its own; 4 runs Hugging Face's."""
        names = ("--no-deps", "--target", str(self.hooked), "transformer-lens<4", "better-abc")
        return "" if self.hooked.exists() else self._pip(self.python, *names)

    def _pip(self, python: Path, *arguments: str) -> str:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True)
        errors = [line for line in answer.stderr.splitlines() if line.startswith("ERROR")]
        return "" if answer.returncode == 0 else f"pip cannot install it: {(errors or ['no reason given'])[-1][:200]}"

    def compare(self, comparison: Comparison, sources: dict[str, str]) -> list[dict[str, str]]:
        """Rows of the table, from a process of its own: some packages change others for good."""
        one = {"package": comparison.package, "function": "", "version": ""}
        if reason := self._missing(comparison, sources):
            return [one | {"compared": "nothing", "who_is_right": reason}]
        paths = os.pathsep.join([str(self.hooked)] if comparison.package == "transformer-lens 3" else [])
        out = self.folder / "rows.json"
        command = [str(self.python), str(HERE / "run.py"), "--only", comparison.function, str(out), json.dumps(sources)]
        settings = os.environ | {
            "PYTHONPATH": paths,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        answer = subprocess.run(command, env=settings, capture_output=True, text=True)
        if answer.returncode:
            reason = (answer.stderr.strip().splitlines() or ["no message"])[-1][:200]
            return [one | {"compared": "nothing", "who_is_right": f"It does not run: {reason}"}]
        version = self._version(comparison, sources)
        return [row | {"version": version} for row in json.loads(out.read_text())]

    def _missing(self, comparison: Comparison, sources: dict[str, str]) -> str:
        if comparison.source and comparison.source not in sources:
            return f"not compared: give its folder with --{comparison.source}"
        if comparison.package == "transformer-lens 3" and (reason := self.install_hooked()):
            return reason
        return self.install(comparison.install) if comparison.install else ""

    def _version(self, comparison: Comparison, sources: dict[str, str]) -> str:
        if comparison.package == "transformer-lens 3":
            (info,) = self.hooked.glob("transformer_lens-*.dist-info")
            return info.name.removeprefix("transformer_lens-").removesuffix(".dist-info")
        if comparison.source and comparison.source != "dadapy":
            command = ["git", "-C", sources[comparison.source], "log", "-1", "--format=%h, %as"]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "a folder without git"
        python = self.old_python if comparison.source else self.python
        command = [str(python), "-c", f"from importlib.metadata import version; print(version({comparison.package!r}))"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def rows_of(function: str, sources: dict[str, str]) -> list[dict[str, str]]:
    """Run one comparison, in the environment that has its package."""
    from rows import Sources

    module, name = function.split(".")
    found = getattr(import_module(module), name)(Sources(**{key: Path(path) for key, path in sources.items()}))
    return [written(asdict(row)) for row in found]


def written(row: dict[str, object]) -> dict[str, str]:
    """Columns of the table. Without a difference one of the two gave no number."""
    difference, tolerance = row["difference"], row["tolerance"]
    return {
        "function": row["function"],
        "package": row["package"],
        "compared": row["compared"],
        "largest_difference": "" if difference != difference else f"{difference:.2g}",
        "tolerance": f"{tolerance:g}",
        "agrees": str(difference <= tolerance),
        "who_is_right": row["right"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for comparison in COMPARISONS:
        if comparison.source and comparison.source != "dadapy":
            parser.add_argument(
                f"--{comparison.source}", type=Path, metavar="PATH", help=f"folder of {comparison.package}"
            )
    default = Path(tempfile.gettempdir()) / "infoflow-packages"
    parser.add_argument("--environments", type=Path, metavar="PATH", default=default, help=f"default: {default}")
    parser.add_argument("--package", metavar="NAME", help="only this one; the table's other rows stay")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    if given["only"]:
        function, out, sources = given["only"]
        Path(out).write_text(json.dumps(rows_of(function, json.loads(sources))))
        return
    named = {c.source for c in COMPARISONS} & {name for name, value in given.items() if value}
    sources = {name: str(given[name].resolve()) for name in named}
    environments = Environments(given["environments"].resolve())
    environments.install(*SHARED)
    failed = environments.install_old() if given["package"] in (None, "dadapy") else ""
    if not failed:
        sources["dadapy"] = str(environments.old_python)
    path = HERE / "packages.csv"
    before = list(csv.DictReader(path.open())) if path.exists() else []
    rows = []
    for comparison in COMPARISONS:
        if given["package"] in (None, comparison.package):
            found = environments.compare(comparison, sources)
        else:
            found = [row for row in before if row["package"] == comparison.package]
        rows += found
        print(
            f"{comparison.package}: {len(found)} rows, {sum(row.get('agrees') == 'True' for row in found)} agree",
            flush=True,
        )
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
