"""The optional parts of infoflow: what each is for, and which packages it needs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Extra:
    """One of `pip install "infoflow[NAME]"`, or a package beside it."""

    name: str
    packages: dict[str, str]  # name on the package index → name of the module
    gives: str
    otherwise: str = ""  # what is done without it
    of_infoflow: bool = True

    @property
    def command(self) -> str:
        """What installs it."""
        return f'pip install "infoflow[{self.name}]"' if self.of_infoflow else f"pip install {' '.join(self.packages)}"


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
    Extra(name="parse", packages={"spacy": "spacy"}, gives="syntax trees for your own sentences, --parse"),
    Extra(
        name="maps",
        packages={"openTSNE": "openTSNE"},
        gives="t-SNE token maps by openTSNE",
        otherwise="scikit-learn draws them",
    ),
    Extra(
        name="cluster",
        packages={"cryptography": "cryptography"},
        gives="studies on several machines, --cluster",
    ),
    Extra(
        name="notebook",
        packages={"jupyterlab": "jupyterlab"},
        gives="figures and models shown in notebooks",
        of_infoflow=False,
    ),
)
