"""The document as one HTML page that needs nothing from anywhere: no script, no font, no other file."""

from __future__ import annotations

from html import escape
from typing import Any

Json = dict[str, Any]

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h2{border-top:1px solid #ccc;padding-top:1rem}code{font:14px ui-monospace,monospace}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}
details{margin:.4rem 0}summary{cursor:pointer}.m{text-transform:uppercase}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a{color:#8bf}}
"""


def page(document: Json) -> str:
    """Routes first, then the schemas that they refer to."""
    title = escape(document["info"]["title"])
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>",
        f"<h1>{title}</h1><p>Version {escape(document['info']['version'])}. ",
        escape(document["info"]["description"]),
        ' The same as data: <a href="/openapi.json">/openapi.json</a>.</p>',
    ]
    for path, methods in document["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts += [_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "".join(parts)


def _operation(path: str, method: str, operation: Json) -> str:
    out = f"<h2 id={operation['operationId']}><code><span class=m>{method}</span> {escape(path)}</code></h2>"
    out += f"<p>{escape(operation['summary'])}</p>"
    body = operation.get("requestBody")
    if body is not None:
        out += f"<p>Body: {_type(body['content']['application/json']['schema'])}</p>"
    rows = ""
    for status, response in operation["responses"].items():
        kinds = "<br>".join(
            f"<code>{escape(media)}</code>: {_type(content.get('schema') or content['x-event-data'])}"
            for media, content in response["content"].items()
        )
        rows += _row(f"<code>{status}</code>", escape(response["description"]), kinds)
    return f"{out}<table>{rows}</table>"


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    rows = "".join(
        _row(
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            _type(inner),
            escape(_description(inner)),
        )
        for field, inner in schema.get("properties", {}).items()
    )
    text = escape(schema.get("description", ""))
    return f"<h2 id={escape(name)}><code>{escape(name)}</code></h2><p>{text}</p><table>{rows}</table>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _description(schema: Json) -> str:
    inner: Json = next((s for s in schema.get("anyOf", ()) if "description" in s), schema)
    found: str = inner.get("description", "")
    return found


def _type(schema: Json) -> str:
    """A short name for what a value may be, with its limits."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(repr(v))}</code>" for v in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(s) for s in schema["anyOf"]))
    kind = schema.get("type", "any value")
    if kind == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}{_limits(schema)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}{_limits(schema)}"
    return escape(str(kind)) + _limits(schema)


_LIMITS = {
    "minimum": "≥",
    "exclusiveMinimum": "&gt;",
    "maximum": "≤",
    "minLength": "length ≥",
    "minItems": "items ≥",
    "maxItems": "items ≤",
    "maxProperties": "entries ≤",
}


def _limits(schema: Json) -> str:
    told = [f"{sign} {schema[key]}" for key, sign in _LIMITS.items() if key in schema]
    return f" ({', '.join(told)})" if told else ""
