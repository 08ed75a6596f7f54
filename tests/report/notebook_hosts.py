"""Pages that hold notebook outputs as VS Code and Colab do, with what their frames forbid; nothing here has a network.

VS Code writes all outputs of a notebook into one page of another frame, tells its theme on the body, and may restrict
that page by a policy. Colab gives each cell a frame of an origin of its own, in which storage and the page around are
out of reach; the frame says how high it is.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: data: blob:; font-src https:; connect-src https:; child-src https: data:"
)
_VSCODE_FRAME = "allow-scripts allow-same-origin allow-forms allow-pointer-lock allow-downloads"
_COLAB_FRAME = (
    "allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-popups-to-escape-sandbox "
    "allow-scripts allow-storage-access-by-user-activation allow-top-navigation-by-user-activation"
)


@contextmanager
def serving(host: str, theme: str, outputs: Sequence[str]) -> Iterator[str]:
    """The address of the host's page, while it is served; frames have another name of this computer: another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((found or "").encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_address[1]
        pages = (_vscode if host == "vscode" else _colab)(theme, outputs, f"http://localhost:{port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.shutdown()
            thread.join()


def _vscode(theme: str, outputs: Sequence[str], frames_at: str) -> dict[str, str]:
    paper, ink = ("#1f1f1f", "#cccccc") if theme == "dark" else ("#ffffff", "#3b3b3b")
    inner = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<style>html, body {{ margin: 0; background: transparent; color: {ink}; font: 13px sans-serif }}
img {{ max-width: 100%; max-height: 100% }} .output {{ padding: 8px; overflow-x: auto }}</style></head>
<body class="vscode-{theme}" data-vscode-theme-kind="vscode-{theme}"><script>
const outputs = {_embedded(outputs)};
const policy = trustedTypes.createPolicy("outputs", {{ createHTML: (text) => text }});
for (const html of outputs) {{
  const element = document.createElement("div");
  element.className = "output";
  element.innerHTML = policy.createHTML(html);
  document.body.append(element);
}}</script></body></html>"""
    outer = (
        f'<!doctype html><link rel="icon" href="data:,"><title>editor</title><body style="margin:0;background:{paper}">'
        f'<iframe sandbox="{_VSCODE_FRAME}" src="{frames_at}/webview" '
        'style="width:100%;height:6000px;border:0;display:block"></iframe>'
    )
    return {"/": outer, "/webview": inner}


def _colab(theme: str, outputs: Sequence[str], frames_at: str) -> dict[str, str]:
    paper, ink = ("#383838", "#d5d5d5") if theme == "dark" else ("#ffffff", "#212121")
    pages = {}
    for number, html in enumerate(outputs):
        pages[f"/{number}"] = f"""<!doctype html><html lang="en" theme="{theme}"><head>
<meta charset="utf-8"><style>body {{ margin: 0; color: {ink}; font: 14px sans-serif }}</style></head>
<body><div id="output-area" style="display:flow-root"></div><script>
const area = document.getElementById("output-area");
area.append(document.createRange().createContextualFragment({_embedded(html)}));
new ResizeObserver(() => parent.postMessage({{ number: {number}, height: area.scrollHeight }}, "*")).observe(area);
</script></body></html>"""
    frames = "".join(
        f'<iframe id="f{number}" sandbox="{_COLAB_FRAME}" src="{frames_at}/{number}" '
        'style="width:100%;height:0;border:0;display:block"></iframe>'
        for number in range(len(outputs))
    )
    pages["/"] = f"""<!doctype html><html theme="{theme}"><link rel="icon" href="data:,"><title>notebook</title>
<body style="margin:0;background:{paper}">{frames}<script>addEventListener("message", ({{ data }}) => {{
  document.getElementById("f" + data.number).style.height = data.height + "px";
}});</script>"""
    return pages


def _embedded(value: object) -> str:
    return json.dumps(value).replace("<", "\\u003c")
