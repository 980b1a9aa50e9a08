"""The OpenAPI document of one server: its structs as schemas, with the limits that its flags and model set."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.reasoning import takes_effort
from octavo_gateway.api.sampling import MAX_ITEMS
from octavo_gateway.openapi.operations import ERRORS, OPERATIONS, Operation
from octavo_gateway.protocol.errors import ErrorEnvelope

_SCHEMAS = "#/components/schemas/{name}"
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
_TEXT_PARTS = ("text", "input_text", "output_text")

Json = dict[str, Any]


def document(context: ApiContext, *, keyed: bool) -> Json:
    """The whole document; `keyed`: the server wants API keys."""
    from octavo import __version__

    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, keyed)
    components: Json = {"schemas": _schemas(context)}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Octavo serving {context.model_name}",
            "version": __version__,
            "description": "Unknown fields are accepted and without effect. Every error has the same envelope.",
        },
        "paths": paths,
        "components": components,
    }


def _operation(operation: Operation, keyed: bool) -> Json:
    content: Json = {operation.media: {"schema": _answer_schema(operation)}}
    if operation.chunk is not None:
        content["text/event-stream"] = {"x-event-data": _ref(operation.chunk)}
    told = operation.summary
    if operation.chunk is not None:
        told += (
            " With stream: server-sent events whose data is of the shape x-event-data, then `[DONE]`; a fault "
            "is an event with the error envelope."
        )
    result: Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {"200": {"description": told, "content": content}},
    }
    if operation.request is not None:
        body = {"schema": _ref(operation.request)}
        result["requestBody"] = {"required": True, "content": {"application/json": body}}
    if "{model}" in operation.path:
        result["parameters"] = [
            {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
    errors = list(operation.errors)
    if keyed and not operation.open:
        errors.append(401)
        result["security"] = [{"key": []}]
    for status in sorted(errors):
        error: Json = {
            "description": ERRORS[status],
            "content": {"application/json": {"schema": _ref(ErrorEnvelope)}},
        }
        if status in (429, 503):
            error["headers"] = _RETRY
        result["responses"][str(status)] = error
    return result


def _answer_schema(operation: Operation) -> Json:
    if operation.answer is not None:
        return _ref(operation.answer)
    return {"type": "object"} if operation.media == "application/json" else {"type": "string"}


def _ref(shape: type[msgspec.Struct]) -> Json:
    return {"$ref": _SCHEMAS.format(name=shape.__name__)}


def _schemas(context: ApiContext) -> Json:
    shapes: dict[type[msgspec.Struct], None] = {ErrorEnvelope: None}
    for operation in OPERATIONS:
        for shape in (operation.request, operation.answer, operation.chunk):
            if shape is not None:
                shapes[shape] = None
    _, schemas = msgspec.json.schema_components(tuple(shapes), ref_template=_SCHEMAS)
    for operation in OPERATIONS:
        if operation.request is not None:
            model = schemas[operation.request.__name__]["properties"]["model"]
            model["anyOf"][0]["enum"] = list(context.settings.served_names)
    for name in ("ChatCompletionRequest", "CompletionRequest"):
        _limit_generation(schemas[name]["properties"], context)
    _limit_prompt(schemas["CompletionRequest"]["properties"], context)
    for name in ("ChatCompletionRequest", "TokenizeRequest"):
        _limit_effort(schemas[name]["properties"], context)
    _one_of_prompt_and_messages(schemas["TokenizeRequest"])
    _content_by_role(schemas["ChatMessage"])
    _only_text_parts(schemas)
    _ids(schemas["DetokenizeRequest"]["properties"]["tokens"], context)
    return schemas


def _sequences(context: ApiContext) -> list[int]:
    """How many the engine runs at once, of all and of one tenant."""
    info = context.engine.model.engine_info
    limits = (info.get(name) for name in ("max_num_seqs", "max_num_seqs_per_tenant"))
    return [limit for limit in limits if limit]


def _limit_generation(properties: Json, context: ApiContext) -> None:
    settings = context.settings
    for name in ("n", "best_of"):
        _given(properties[name])["maximum"] = min([settings.max_choices, *_sequences(context)])
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        schema = properties.get(name)
        if schema is not None and _given(schema)["type"] == "integer":
            _given(schema)["maximum"] = settings.max_logprobs
    _given(properties["stop"])["anyOf"][1]["maxItems"] = settings.max_stop_strings
    for name, limit in MAX_ITEMS.items():
        schema = _given(properties[name])
        schema["maxProperties" if schema["type"] == "object" else "maxItems"] = limit
    for name in ("stop_token_ids", "allowed_token_ids"):
        _ids(_given(properties[name]), context)


def _limit_effort(properties: Json, context: ApiContext) -> None:
    if not takes_effort(context.engine.model.chat_template, context.reasoning_format is not None):
        _given(properties["reasoning_effort"])["enum"] = ["none"]


def _limit_prompt(properties: Json, context: ApiContext) -> None:
    """One kind of prompt per list, and how many."""
    text = {"type": "string", "minLength": 1}
    ids: Json = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    _ids(ids, context)
    several = {"type": "array", "minItems": 1, "maxItems": context.settings.max_prompts}
    prompt = properties["prompt"]
    prompt["anyOf"] = [text, ids, {**several, "items": {"anyOf": [text, ids]}}]


def _ids(schema: Json, context: ApiContext) -> None:
    schema["items"]["minimum"] = 0
    schema["items"]["maximum"] = context.engine.tokenizer.vocab_size - 1


def _one_of_prompt_and_messages(schema: Json) -> None:
    _given(schema["properties"]["messages"])["minItems"] = 1
    schema["oneOf"] = [
        {"required": [name], "properties": {name: {"type": kind}, other: {"type": "null"}}}
        for name, kind, other in (("prompt", "string", "messages"), ("messages", "array", "prompt"))
    ]


def _content_by_role(schema: Json) -> None:
    """Only an assistant that called tools, or a tool, may have said nothing."""
    schema["anyOf"] = [
        {"properties": {"role": {"enum": ["assistant", "tool"]}}},
        {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}},
    ]


def _only_text_parts(schemas: Json) -> None:
    part = schemas["ContentPart"]
    part["properties"]["type"]["enum"] = [*_TEXT_PARTS, "refusal"]
    part["anyOf"] = [
        {
            "required": [field],
            "properties": {"type": {"enum": list(kinds)}, field: {"type": "string"}},
        }
        for kinds, field in ((_TEXT_PARTS, "text"), (("refusal",), "refusal"))
    ]


def _given(schema: Json) -> Json:
    """The schema of a nullable field without the null."""
    found: Json = schema["anyOf"][0] if "anyOf" in schema else schema
    return found
