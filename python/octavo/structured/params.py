"""What a request may ask of its output's form, under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from octavo import checks
from octavo.errors import InvalidArgumentError
from octavo.structured import schema, spec
from octavo.structured.spec import GrammarSpec

_FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@dataclass
class StructuredOutputsParams:
    """The form of an output. Exactly one of the first six is given.

    Attributes:
        json: a JSON schema, as a map or as text.
        regex: a pattern that the whole text matches (Rust's syntax, without look-around).
        choice: the texts of which the output is one.
        grammar: a context-free grammar in Lark's syntax or GBNF.
        json_object: True: any JSON object.
        structural_tag: free text with tagged parts, as a map or as JSON:
            ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``.
        disable_any_whitespace: JSON without blanks between its parts. By default a blank or a line break with an
            indentation may stand there.
        whitespace_pattern: a regular expression for what may stand there.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | Mapping[str, Any] | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in _FORMS if getattr(self, name) not in (None, False)]
        schema: object = self.json  # JSON has a schema that is a boolean
        if schema is False:
            raise InvalidArgumentError(
                "json: nothing fits the schema false: leave it out, or give a schema", param="json"
            )
        if len(given) != 1:
            raise InvalidArgumentError(
                f"structured_outputs must have exactly one of {', '.join(_FORMS)}, got {', '.join(given) or 'none'}",
                param="structured_outputs",
            )
        checks.boolean("disable_any_whitespace", self.disable_any_whitespace)
        if self.json_object is not None:
            checks.boolean("json_object", self.json_object)
        if self.whitespace_pattern is not None and (
            not isinstance(self.whitespace_pattern, str) or self.disable_any_whitespace
        ):
            raise checks.invalid(
                "whitespace_pattern",
                self.whitespace_pattern,
                "a pattern, and unset with disable_any_whitespace",
            )

    @classmethod
    def of(cls, given: Any) -> StructuredOutputsParams:
        """From such an object or a map of its fields."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise checks.invalid(
                "structured_outputs", given, "StructuredOutputsParams or a map of its fields"
            )
        known = {f.name for f in fields(cls)}
        for name, value in given.items():
            if name not in known and value not in (None, False):
                raise InvalidArgumentError(
                    f"structured_outputs has no field {str(name)[:100]!r}; known are {', '.join(sorted(known))}",
                    param="structured_outputs",
                )
        return cls(**{name: value for name, value in given.items() if name in known and value is not None})

    def spec(self) -> GrammarSpec:
        """The grammar that this asks for. It may cost milliseconds for a large schema."""
        whitespace = None if self.disable_any_whitespace else self.whitespace_pattern or schema.WHITESPACE
        if self.json is not None:
            return spec.json_schema(self.json, whitespace=whitespace)
        if self.json_object:
            return spec.json_schema({"type": "object"}, whitespace=whitespace)
        if self.regex is not None:
            return spec.regex(self.regex)
        if self.choice is not None:
            return spec.choice(self.choice)
        if self.grammar is not None:
            return spec.grammar(self.grammar)
        return spec.structural_tag(self.structural_tag)
