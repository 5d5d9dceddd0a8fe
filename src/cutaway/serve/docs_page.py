"""The page at /docs: the OpenAPI document as HTML, with forms to try each path. It loads nothing from other hosts."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
body { color: #222; background: #fff }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc } code, pre { font: 14px/1.45 ui-monospace, monospace }
h2 code { font-size: 1.15rem; font-weight: 600 }
pre { background: #f4f4f2; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% } summary { cursor: pointer; margin: .8rem 0 }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #eee }
td { overflow-wrap: anywhere }
@media (min-width: 50rem) { td:first-child { white-space: nowrap } }
textarea { font: 14px/1.45 ui-monospace, monospace; width: 100%; box-sizing: border-box; padding: .8rem }
button { font: inherit; padding: .2rem 1rem } pre.answer { max-height: 30rem; overflow-y: auto } .wrong { color: #b00 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } pre { background: #242424 }
td, th { border-color: #333 } a { color: #8bf } textarea, input { color: #ddd; background: #242424 }
.wrong { color: #f88 } }
"""

# Sends a form's content and shows the response as it arrives. After a 401 the page asks for a token.
SCRIPT = """
const token = document.getElementById("token");
for (const form of document.querySelectorAll("form[data-path]")) {
  const [answer, status, button] = [".answer", ".status", "button"].map((name) => form.querySelector(name));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.hidden = false;
    answer.textContent = "";
    status.textContent = "...";
    status.className = "status";
    const headers = {};
    if (token.value) headers.authorization = "Bearer " + token.value;
    const method = form.dataset.method, field = form.querySelector("textarea");
    if (field) headers["content-type"] = "application/json";
    const began = performance.now();
    try {
      const response = await fetch(form.dataset.path, {method, headers, body: field ? field.value : undefined});
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) answer.textContent += part.value;
      const milliseconds = Math.round(performance.now() - began);
      status.textContent = `${response.status} ${response.statusText}, ${milliseconds} ms`;
      if (!response.ok) status.className = "status wrong";
      if (response.status === 401) token.closest("p").hidden = false;
      if ((response.headers.get("content-type") || "").includes("json"))
        answer.textContent = JSON.stringify(JSON.parse(answer.textContent), null, 1);
    } catch (error) {
      status.textContent = "no answer: " + error.message;
      status.className = "status wrong";
    }
    button.disabled = false;
  });
}
"""
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    f"form-action 'none'; script-src 'sha256-{b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)
DEFAULT_ADDRESS = "http://127.0.0.1:8643"
ADDRESS = re.compile(r"https?://[\w.:\[\]-]+")


def docs_page(document: dict[str, Any], address: str = DEFAULT_ADDRESS) -> str:
    """Render one section for each path: its fields, a curl command and a form. `address` is this server's URL."""
    address = address if ADDRESS.fullmatch(address) else DEFAULT_ADDRESS
    sections = [
        section(path, method, operation, document, address)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Cutaway: the API</title><style>{STYLE}</style>"
        f"<h1>Cutaway {escape(document['info']['version'])}: the API</h1>"
        f"<p>{escape(document['info']['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
        '<p hidden><label>This server needs a token: <input id="token" autocomplete="off"></label></p>'
        + "".join(sections)
        + f"<script>{SCRIPT}</script></html>"
    )


def section(path: str, method: str, operation: dict[str, Any], document: dict[str, Any], address: str) -> str:
    html = f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
    if "requestBody" not in operation:
        trial = "" if "{" in path else form(path, method, "")
        return html + f"<pre>curl {escape(address + path)}</pre>{trial}"
    schema = resolve_ref(operation["requestBody"]["content"]["application/json"]["schema"], document)
    examples = schema.get("examples", [])
    for example in examples:
        body = json.dumps(example).replace("'", "'\\''")
        html += f"<pre>curl {escape(address + path)} --json '{escape(body)}'</pre>"
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(', '.join(value_types(one, document)))}"
        f"{' (required)' if name in required else ''}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for name, one in sorted(schema["properties"].items(), key=lambda field: field[0] not in required)
    )
    table = f"<table><tr><th>field</th><th>type</th><th></th></tr>{rows}</table>"
    example = escape(json.dumps(examples[0], indent=1))
    field = (
        f'<textarea rows="{example.count(chr(10)) + 1}" spellcheck="false" aria-label="request">{example}</textarea>'
    )
    return f"{html}{form(path, method, field)}<details><summary>All fields</summary>{table}</details>"


def form(path: str, method: str, field: str) -> str:
    return (
        f'<form data-path="{escape(path)}" data-method="{escape(method.upper())}">{field}'
        '<p><button>Try it</button> <span class="status" role="status"></span></p>'
        '<pre class="answer" hidden></pre></form>'
    )


def resolve_ref(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    definition: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return definition


def value_types(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    """Describe each type that a value may have: "integer (1 to 16)"."""
    for one in (resolve_ref(part, document) for part in schema.get("anyOf", [schema])):
        if "enum" in one:
            yield " | ".join(map(str, one["enum"]))
        elif one.get("type") == "array":
            yield "list of " + " or ".join(value_types(one["items"], document))
        elif one.get("type") != "null":
            low, high = one.get("minimum"), one.get("maximum")
            bounds = "" if low is None or high is None else f" ({format_number(low)} to {format_number(high)})"
            yield f"{one.get('type', 'any')}{bounds}"


def format_number(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
