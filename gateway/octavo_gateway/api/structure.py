"""From response_format and structured_outputs to the one form that an answer is to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from octavo_gateway.protocol.common import GenerationFields
from octavo_gateway.protocol.errors import ApiError, from_engine, invalid
from octavo_gateway.protocol.structure import (
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    StructuralTagFormat,
)

if TYPE_CHECKING:
    from octavo.errors import OctavoError
    from octavo.structured import GrammarSpec

RESPONSE_FORMAT = "response_format"
STRUCTURED_OUTPUTS = "structured_outputs"


@dataclass(frozen=True)
class Structure:
    """The form of an answer, and the field that asked for it. Making the grammar may cost milliseconds."""

    spec: Callable[[], GrammarSpec]
    param: str

    def error(self, error: OctavoError) -> ApiError:
        """A complaint about it in the client's words."""
        own = (STRUCTURED_OUTPUTS, "grammar")
        inner = "" if error.param in own or self.param == RESPONSE_FORMAT else f".{error.param}"
        text = str(error)
        return from_engine(
            error.code, self.param + inner, text if text.startswith(self.param) else f"{self.param}: {text}"
        )


def asked_structure(request: GenerationFields) -> Structure | None:
    """What the request asks for; None where its answer is free. A 400 where it asks for two things or for none."""
    given = {
        RESPONSE_FORMAT: _of_response_format(request.response_format),
        STRUCTURED_OUTPUTS: _of_structured_outputs(request),
    }
    asked = {param: values for param, values in given.items() if values is not None}
    if len(asked) > 1:
        raise invalid(STRUCTURED_OUTPUTS, "structured_outputs and response_format exclude each other.")
    for param, values in asked.items():
        from octavo.errors import OctavoError
        from octavo.structured import StructuredOutputsParams

        try:
            return Structure(StructuredOutputsParams.of(values).spec, param)
        except OctavoError as e:
            raise from_engine(e.code, param, str(e)) from None
    return None


def _of_response_format(given: ResponseFormat | None) -> dict[str, Any] | None:
    if isinstance(given, JsonObjectFormat):
        return {"json_object": True}
    if isinstance(given, JsonSchemaFormat):
        return {"json": given.json_schema.schema}
    if isinstance(given, StructuralTagFormat):
        return {"structural_tag": msgspec.to_builtins(given)}
    return None


def _of_structured_outputs(request: GenerationFields) -> dict[str, Any] | None:
    given = request.structured_outputs
    if given is None:
        return None
    values = {name: getattr(given, name) for name in given.__struct_fields__}
    asked = {name: value for name, value in values.items() if value is not None}
    return asked or None
