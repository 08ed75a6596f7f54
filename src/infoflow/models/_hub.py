"""Whether the model hub is reachable."""

import os
import socket
from urllib.parse import urlsplit

from huggingface_hub import constants


def hub_is_reachable() -> bool:
    """False on a machine without network, where the hub's client would retry for half a minute.

    Only the host name is looked up. A proxy does that itself, so behind one the client may try.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True
