"""What a request may ask of its answer's form: OpenAI's response_format and vLLM's structured_outputs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class JsonSchema(msgspec.Struct, kw_only=True):
    schema: dict[str, Any] | bool
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class StructureTag(msgspec.Struct, kw_only=True):
    begin: str
    schema: dict[str, Any] | None = None
    end: str = ""


class TextFormat(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(msgspec.Struct, kw_only=True, tag_field="type", tag="json_object"):
    pass


class JsonSchemaFormat(msgspec.Struct, kw_only=True, tag_field="type", tag="json_schema"):
    json_schema: JsonSchema


class StructuralTagFormat(msgspec.Struct, kw_only=True, tag_field="type", tag="structural_tag"):
    structures: list[StructureTag]
    triggers: list[str]


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat | StructuralTagFormat


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
