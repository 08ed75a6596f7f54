"""How a given model reads texts: its tokenizer, languages and prefix, as options of every command that takes one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from infoflow.models import Model


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Tokenizer, languages and prefix."""

    tokenizer: Annotated[str | None, Parameter(help="Folder or name. Default: the one beside the weights.")] = None
    source_language: Annotated[
        str | None,
        Parameter(show_default=False, help="Code of the texts' language, for a model of several, such as fra_Latn."),
    ] = None
    target_language: Annotated[
        str | None, Parameter(show_default=False, help="Code of the language that such a model writes.")
    ] = None
    prefix: Annotated[
        str | None,
        Parameter(show_default=False, help='Stands before each text, such as "translate English to German:".'),
    ] = None

    @property
    def marks(self) -> dict[str, str]:
        """Languages and prefix, as the library takes them."""
        return {
            "source_language": self.source_language or "",
            "target_language": self.target_language or "",
            "prefix": self.prefix or "",
        }

    def load(self, model: str, device: str | None) -> "Model":
        """The model of that name or folder."""
        from infoflow.models import load_model

        return load_model(model, self.tokenizer, device or "auto", **self.marks)
