"""Explore models on a local page: the views of the offline page, with input fields and controls for ablations."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from infoflow.foundation import UserError, missing_extra, running_words, stop_signals, version
from infoflow.heads import takes_pairs
from infoflow.models import Model, load_model
from infoflow.report._embedding import asset, closed, environment, policy, style
from infoflow.report._view import further_views, view_scripts

from ._answers import Responses
from ._readings import ExploredModel, Readings
from ._request import MOST_CHARACTERS
from ._routes import Worker

if TYPE_CHECKING:
    import uvicorn


def explorer_page(models: Sequence[Mapping[str, Any]], start: Mapping[str, Any]) -> tuple[str, str]:
    """The page, and the content security policy to send with it.

    Args:
        models: Name, task, stacks, heads and example sentences of each model.
        start: Initial state of the page: text, translation, the command that restarts the explorer, limits.
    """
    scripts = [*view_scripts(further_views()), closed(asset("explorer.js"))]
    page = (
        environment()
        .get_template("explorer.html.jinja")
        .render(
            models=models,
            start=start,
            style=Markup(style("style.css", "attention.css", "views.css", "explorer.css")),
            scripts=[Markup(script) for script in scripts],
            version=version("infoflow"),
        )
    )
    return page, f"{policy(scripts)}; connect-src 'self'; frame-ancestors 'none'"


LONGEST = 128
_LOOPBACK = "127.0.0.1"
_MOST_MODELS = 2
_FILLS = {"masked-lm": "Fill in ___", "causal-lm": "What comes next?", "seq2seq": "What comes next?"}
_GROUPS = (
    (
        "The keys to the old cabinet are on the table.",
        "She gave him the book because he asked for it.",
        "The cat that the dog chased sleeps in the garden.",
    ),
    ("the old cat sees the dog", "the red house sleeps", "a big dog likes the cat"),
    (
        "Die Schlüssel zu dem alten Schrank liegen auf dem Tisch.",
        "Der Hund, den die Katze sieht, schläft im Garten.",
        "Sie gab ihm das Buch, weil er danach fragte.",
    ),
    (
        "Les clés de la vieille armoire sont sur la table.",
        "Le chat que le chien regarde dort dans le jardin.",
        "Elle lui a donné le livre parce qu'il l'avait demandé.",
    ),
)


class Explorer:
    """A page for exploring models: `.address` opens it, `.stop()` ends it."""

    def __init__(
        self,
        models: Sequence[Model],
        *,
        sentence: str = "",
        translation: str = "",
        pair: str = "",
        port: int = 0,
        longest: int = LONGEST,
        host: str = "",
        command: str = "infoflow explore MODEL",
    ) -> None:
        self.check(len(models), port=port, longest=longest, host=host)
        for model in models:
            if lacking := model.anatomy.lacks():
                raise UserError(f"{model.name} has no attention: {lacking}.")
        from ._routes import Routes
        from ._safety import Guard, new_token

        self.models, self._sentence = tuple(models), sentence
        self._second = {"translation": translation or None, "pair": pair or None}
        self._subjects = [ExploredModel(number, model) for number, model in enumerate(models)]
        self._socket = _bound(host or _LOOPBACK, port)
        self.port: int = self._socket.getsockname()[1]
        token = new_token()
        self.address = f"http://{host or _LOOPBACK}:{self.port}/?token={token}"
        self._worker = Worker()
        answers = Responses(Readings(self._subjects, longest))
        page = explorer_page([_facts(model) for model in models], _start(models, sentence, translation, pair, command))
        routes = Routes(answers, self._worker, page)
        self.app = Guard(routes.app(), token, self.port, (host,) if host else ())
        self._server = _server(self.app)
        self._thread: threading.Thread | None = None

    @staticmethod
    def check(num_models: int, *, port: int = 0, longest: int = LONGEST, host: str = "") -> None:
        """Check the arguments before a model is loaded.

        Raises:
            UserError: The extra is not installed, there are too many models, or the port is unavailable.
        """
        if not find_spec("starlette") or not find_spec("uvicorn"):
            raise missing_extra("The live explorer", "starlette and uvicorn", "explore")
        if not 1 <= num_models <= _MOST_MODELS:
            raise UserError(f"The explorer shows one model, or two side by side. Got {num_models}.")
        if longest < 2:
            raise UserError(f"--longest, the maximum number of tokens, must be at least 2. Got {longest}.")
        _bound(host or _LOOPBACK, port).close()

    def serve(self) -> None:
        """Serve until Ctrl-C."""
        with _interrupts(self._server):
            self._run()

    def start(self) -> "Explorer":
        """Serve in a separate thread, until `stop` or the end of Python."""
        self._thread = threading.Thread(target=self._run, name="infoflow-explorer-server", daemon=True)
        self._thread.start()
        return self

    def open(self) -> None:
        """Open the page in a browser."""
        webbrowser.open(self.address)

    def stop(self) -> None:
        """End the server after the running computation."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self._close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._close()

    def _close(self) -> None:
        self._worker.stop()
        self._worker.join(10)
        self._socket.close()

    def __repr__(self) -> str:
        return f"Explorer({', '.join(model.name for model in self.models)}): {self.address}"

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        from infoflow.report import view

        link = Markup('<p>Live explorer of {}: <a href="{}" target="_blank" rel="noopener">open it</a></p>').format(
            ", ".join(model.name for model in self.models), self.address
        )
        sentence = self._sentence or examples(self.models[0])[0]
        return str(link) + view(self.models[0], sentence, **self._second)._repr_html_()


def explore(
    *models: Model | Path | str,
    sentence: str = "",
    translation: str = "",
    pair: str = "",
    port: int = 0,
    longest: int = LONGEST,
) -> Explorer:
    """Start a page for exploring one model, or two side by side: it runs until `.stop()`.

    Enter a sentence to see all heads, one head, queries and keys, the route of a prediction, what each layer predicts,
    the sources of a prediction, the effect of removing a token, a head or a layer, and of swapping a part of the model.
    It needs the extra `[explore]`. The page is served only to this computer, and only with the token in its address. Do
    not use the models for anything else while it runs.

    Args:
        models: One or two models from `load_model`, or their sources: folders or names.
        sentence: The initial sentence.
        translation: Decoder input of an encoder–decoder; default: the model's own translation.
        pair: The initial second sentence of an encoder's pair.
        port: A fixed port; 0 takes a free one.
        longest: Maximum number of tokens of a sentence.

    Returns:
        The explorer: its `address` opens the page; in a notebook it also shows the first sentence.

    Raises:
        UserError: The extra is not installed, there are more than two models, or one has no attention.
    """
    Explorer.check(len(models), port=port, longest=longest)
    loaded = [model if isinstance(model, Model) else load_model(model) for model in models]
    explorer = Explorer(loaded, sentence=sentence, translation=translation, pair=pair, port=port, longest=longest)
    return explorer.start()


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise UserError(f"--port must be a number in 0..65535; 0: any free port. Got {port}.")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":  # on Windows it would let others listen at the same port
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen()  # a browser may connect before the server has started
    except OSError as error:
        made.close()
        where = f"port {port} of {host}" if port else host
        raise UserError(f"The explorer cannot listen at {where}: {error.strerror}. Choose another --port.") from error
    return made


class _NotOurs(logging.Filter):
    """Drops log messages about requests that are not HTTP, with which a port scan would fill the terminal."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return (kind is None or kind.__name__ != "LocalProtocolError") and "Invalid HTTP request" not in str(record.msg)


_NOT_OURS = _NotOurs()  # one instance, since a logger adds the same filter only once


def _server(app: Any) -> "uvicorn.Server":
    import uvicorn

    from ._safety import PatientProtocol

    logging.getLogger("uvicorn.error").addFilter(_NOT_OURS)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        log_config=None,  # addresses contain the token, and texts are private
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=32_768,
    )

    class Server(uvicorn.Server):
        """A server that leaves signals to the caller."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(config)


@contextlib.contextmanager
def _interrupts(server: "uvicorn.Server") -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the server cleanly; a second signal ends it immediately."""

    def end(number: int, frame: Any) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    with stop_signals(end):
        yield


def _facts(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "stacks": len(model.anatomy.stacks),
        "pairs": takes_pairs(model),
        "predicts": model.task != "encoder",
        "readable": model.tokenizer is not None,
    }


def _start(models: Sequence[Model], sentence: str, translation: str, pair: str, command: str) -> dict[str, Any]:
    fills = list(dict.fromkeys(_FILLS[model.task] for model in models if model.task in _FILLS))
    return {
        "text": sentence,
        "translation": translation,
        "translates": any(len(model.anatomy.stacks) > 1 for model in models),
        "pair": pair,
        "pairs": any(takes_pairs(model) for model in models),
        "fills": " / ".join(fills),
        "examples": examples(models[0]),
        "command": command,
        "most_characters": MOST_CHARACTERS,
    }


def examples(model: Model) -> tuple[str, ...]:
    """Three example sentences: those with the fewest tokens, where an unknown token counts as ten."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return ("5 6 7 8", "5 6 7 8 9 5 6 7", "9 8 7 6 5")
    unknown = tokenizer.unk_token_id

    def cost(sentences: tuple[str, ...]) -> float:
        ids = [token for text in sentences for token in tokenizer(text)["input_ids"]]
        words = sum(len(running_words(text)) for text in sentences)
        return (len(ids) + 9 * sum(token == unknown for token in ids if unknown is not None)) / words

    return min(_GROUPS, key=cost)
