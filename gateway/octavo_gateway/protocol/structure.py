"""What a request may ask of its answer's form: OpenAI's response_format and vLLM's structured_outputs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class JsonSchemaFormat(msgspec.Struct, kw_only=True):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None


class StructureTag(msgspec.Struct, kw_only=True):
    begin: str
    schema: dict[str, Any] | None = None
    end: str = ""


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    structures: list[StructureTag] | None = None
    triggers: list[str] | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    json: Annotated[dict[str, Any] | str | bool | None, Meta(description="A JSON schema.")] = None
    regex: Annotated[str | None, Meta(description="A pattern that the whole answer matches.")] = None
    choice: Annotated[list[str] | None, Meta(description="The answers that are possible.")] = None
    grammar: Annotated[str | None, Meta(description="A context-free grammar in Lark's syntax or GBNF.")] = (
        None
    )
    json_object: Annotated[bool | None, Meta(description="Any JSON object.")] = None
    structural_tag: Annotated[
        dict[str, Any] | str | None, Meta(description="Free text with tagged parts that fit schemas.")
    ] = None
    disable_any_whitespace: bool | None = None
    whitespace_pattern: str | None = None
