"""`infoflow explore`."""

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from infoflow.cli._options import Reading, limited
from infoflow.cli._session import Device, Names, Session, names_of, show, working


def explore(
    *models: str,
    sentence: Annotated[str, Parameter(show_default=False, help="Sentence shown when the page opens.")] = "",
    translation: Annotated[
        str, Parameter(show_default=False, help="Input for the decoder of an encoder–decoder model.")
    ] = "",
    pair: Annotated[
        str, Parameter(show_default=False, help="A second sentence, for an encoder that reads pairs.")
    ] = "",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: Names = (),
    port: Annotated[int, Parameter(converter=limited("CountOrNone"), help="Port to listen on; 0: any free one.")] = 0,
    longest: Annotated[int, Parameter(converter=limited("Count"), help="Most tokens in a sentence.")] = 128,
    browser: Annotated[bool, Parameter(name="--open", negative=(), help="Open the page in a browser.")] = False,
    host: Annotated[
        str, Parameter(show_default=False, help="Address to listen on for other machines; requires --insecure.")
    ] = "",
    insecure: Annotated[
        bool, Parameter(negative=(), help="Allow --host, although text and access token are sent unencrypted.")
    ] = False,
    device: Device = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Explore a model on a live page: type a sentence to see attention, routes, lens and relevance, and change parts.

    Only this computer can open the page, at the printed address. Ctrl-C stops it. Needs the extra [explore].

    Args:
        models: One or two models: folders that save_pretrained wrote, .gguf files, or names on the model hub.
    """
    with working(session, *models):
        from infoflow.foundation import UserError, current_display

        from .server import Explorer

        if host and not insecure:
            raise UserError(
                f"--host {host} lets other machines reach the page, and text is sent unencrypted. Forward a port "
                "instead: ssh -L PORT:127.0.0.1:PORT MACHINE. To allow it anyway, add --insecure."
            )
        Explorer.check(len(models), port=port, longest=longest, host=host)
        named = zip(models, names_of(models, name), strict=True)
        loaded = [reading.load(model, device, its_name) for model, its_name in named]
        explorer = Explorer(
            loaded,
            sentence=sentence,
            translation=translation,
            pair=pair,
            port=port,
            longest=longest,
            host=host,
            command=shlex.join(["infoflow", *sys.argv[1:]]),
        )
        if host:
            current_display().warn("Other machines can reach the page, and its text is sent unencrypted.")
        show(f"Explorer: {explorer.address}")
        show(f"From another machine: ssh -L {explorer.port}:127.0.0.1:{explorer.port} THIS-MACHINE. Ctrl-C stops it.")
        sys.stdout.flush()
        if browser:
            explorer.open()
        explorer.serve()
        show("Stopped.")
