"""`infoflow explore`."""

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from infoflow.cli._options import limited
from infoflow.cli._reading import Reading
from infoflow.cli._session import Device, Session, working
from infoflow.cli._show import show


def explore(
    *models: str,
    sentence: Annotated[str, Parameter(show_default=False, help="What the page opens with.")] = "",
    translation: Annotated[
        str, Parameter(show_default=False, help="What the decoder of an encoder–decoder model reads then.")
    ] = "",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    port: Annotated[int, Parameter(converter=limited("CountOrNone"), help="A fixed port; 0 takes a free one.")] = 0,
    longest: Annotated[
        int,
        Parameter(
            converter=limited("Count"),
            help="Tokens of a sentence at most; time grows with their number, ALTI's with its square.",
        ),
    ] = 128,
    browser: Annotated[bool, Parameter(name="--open", negative=(), help="Open the page in a browser.")] = False,
    host: Annotated[
        str,
        Parameter(show_default=False, help="A name of this machine to be reached by from elsewhere; see --insecure."),
    ] = "",
    insecure: Annotated[
        bool, Parameter(negative=(), help="With --host: text and token travel unencrypted, and anybody may try.")
    ] = False,
    device: Device = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Explore a model on a live page: type a sentence, see attention, lens, relevance and flow, take something away.

    The page is for this computer alone and for whoever has its address. Ctrl-C ends it. Needs the extra [explore].

    Args:
        models: One, or two side by side: folders that save_pretrained wrote, .gguf files, or names on the model hub.
    """
    with working(session):
        from dataclasses import replace

        from infoflow.foundation import UserError, current_display

        from .server import Explorer

        if host and not insecure:
            raise UserError(
                f"--host {host} lets others reach the page, and what is typed travels unencrypted. Forward a port "
                "instead: ssh -L PORT:127.0.0.1:PORT MACHINE. To go on, add --insecure."
            )
        Explorer.check(len(models), port=port, longest=longest, host=host)
        loaded = [replace(reading.load(one, device), name=_name(one)) for one in models]
        explorer = Explorer(
            loaded,
            sentence=sentence,
            translation=translation,
            port=port,
            longest=longest,
            host=host,
            command=shlex.join(["infoflow", *sys.argv[1:]]),
        )
        if host:
            current_display().warn("The page can be reached from other machines, and its text travels unencrypted.")
        show(f"Explorer: {explorer.address}")
        show(f"From elsewhere: ssh -L {explorer.port}:127.0.0.1:{explorer.port} THIS-MACHINE. Ctrl-C ends it.")
        sys.stdout.flush()
        if browser:
            explorer.open()
        explorer.serve()
        show("Stopped.")


def _name(model: str) -> str:
    """As `infoflow view` names it."""
    from infoflow.cli._measuring import run_name

    return run_name("view", model)[len("view-") :]
