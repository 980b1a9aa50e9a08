"""Types of request fields with what the schema says about them.

Ranges stand here for readers of the schema only: they are checked where the value is used, with an error that names
value and limit.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

_INT32 = {"minimum": -(2**31), "maximum": 2**31 - 1}


def _range(low: float, high: float | None = None) -> dict[str, float]:
    return {"minimum": low} if high is None else {"minimum": low, "maximum": high}


_TokenId = Annotated[int, Meta(extra_json_schema=_range(0))]
_Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]


def _only(*values: Any) -> Meta:
    return Meta(
        description="Known; only what asks for nothing is possible here.",
        extra_json_schema={"enum": list(values)},
    )


MaxTokens = Annotated[
    int,
    Meta(
        description="The most tokens to generate; more than the window leaves is clamped.",
        extra_json_schema=_range(1, 2**31 - 1),
    ),
]
MaxTokensOrZero = Annotated[
    int,
    Meta(
        description="The most tokens to generate; 0 is possible with echo.",
        extra_json_schema=_range(0, 2**31 - 1),
    ),
]
MinTokens = Annotated[
    int,
    Meta(
        description="No end token and no stop string before so many; at most max_tokens.",
        extra_json_schema=_range(0, 2**31 - 1),
    ),
]
Seed = Annotated[
    int,
    Meta(
        description="The same seed gives the same text; without one every request draws its own.",
        extra_json_schema=_range(-(2**63), 2**64 - 1),
    ),
]
Stop = Annotated[_Text | list[_Text], Meta(description="Strings that end the text.")]
Temperature = Annotated[
    float,
    Meta(description="Below 1e-5 the likeliest token is taken.", extra_json_schema=_range(0, 100)),
]
TopP = Annotated[float, Meta(description="0 is greedy.", extra_json_schema=_range(0, 1))]
TopK = Annotated[int, Meta(description="0 and -1 are off.", extra_json_schema=_range(-1, 2**63 - 1))]
MinP = Annotated[float, Meta(description="Relative to the likeliest token.", extra_json_schema=_range(0, 1))]
Penalty = Annotated[float, Meta(description="Over generated tokens.", extra_json_schema=_range(-2, 2))]
RepetitionPenalty = Annotated[
    float,
    Meta(
        description="Over prompt and generated tokens; 1 is off.",
        extra_json_schema={"exclusiveMinimum": 0, "maximum": 10},
    ),
]
LogitBias = Annotated[
    dict[str, Annotated[float, Meta(extra_json_schema=_range(-100, 100))]],
    Meta(
        description="Token id to what is added to its logit.",
        extra_json_schema={"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"}},
    ),
]
StopTokenIds = Annotated[list[_TokenId], Meta(description="Tokens that end the text.")]
AllowedTokenIds = Annotated[
    list[_TokenId], Meta(description="Nothing but these is generated.", extra_json_schema={"minItems": 1})
]
BadWords = Annotated[list[_Text], Meta(description="Strings that are not generated.")]
ContinueFinalMessage = Annotated[
    bool, Meta(description="Go on with the last message, which must be the assistant's.")
]
TruncatePromptTokens = Annotated[
    int,
    Meta(
        description="Keep only the last so many tokens of the prompt; -1: as many as the window takes.",
        extra_json_schema={"anyOf": [{"const": -1}, {"minimum": 1}]},
    ),
]
Priority = Annotated[int, Meta(description="Smaller runs first.", extra_json_schema=_INT32)]
Timeout = Annotated[
    float,
    Meta(
        description="Seconds from the request's arrival after which it is ended: with an error where it has no token "
        "yet, else with what there is. At most the server's own limit.",
        extra_json_schema=_range(0.001, 1e7),
    ),
]
CacheSalt = Annotated[
    str,
    Meta(
        description="Cached prefixes are shared only among requests with the same salt.",
        extra_json_schema={"minLength": 1},
    ),
]
# Upper bounds that are flags of the server are filled in when the schema is served.
Logprobs = Annotated[int, Meta(description="How many alternatives per token.", extra_json_schema=_range(0))]
Choices = Annotated[int, Meta(description="Choices per prompt.", extra_json_schema=_range(1))]

FunctionName = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.:/-]{1,128}$"})]
ReasoningEffort = Annotated[
    str,
    Meta(
        description="How much to think before the answer; for models that reason.",
        extra_json_schema={"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]},
    ),
]
Nothing = Annotated[Any, _only(None, [])]
NoTemplate = Annotated[str | None, _only(None)]
NoSuffix = Annotated[str, _only("")]
NotYet = Annotated[bool, _only(False)]
Modalities = list[Annotated[str, Meta(extra_json_schema={"enum": ["text"]})]]
Prompt = Annotated[
    _Text | list[_Text | _TokenId | Annotated[list[_TokenId], Meta(extra_json_schema={"minItems": 1})]],
    Meta(description="A text, texts, token ids, or lists of token ids."),
]
