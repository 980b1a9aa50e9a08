"""Limits and defaults of the API, all of them flags of `octavo serve`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo_gateway.protocol.tokens import TokenizeRequest


@dataclass(frozen=True)
class ApiSettings:
    served_names: tuple[str, ...]  # the first is the one that answers carry
    other_names: tuple[str, ...] = ()  # taken in requests, too, and not listed
    default_sampling: Mapping[str, Any] = field(default_factory=dict)  # --override-generation-config
    use_generation_config: bool = True  # False: the API's own defaults instead of the model's
    strict_max_tokens: bool = False  # True: max_tokens beyond the free window is a 400
    max_stop_strings: int = 4
    max_logprobs: int = 20
    max_choices: int = 128  # n and best_of
    max_nesting_depth: int = 64
    max_prompts: int = 128  # prompts in one /v1/completions request
    length_shortcut: bool = True  # refuse what cannot fit without tokenizing it
    tool_parser: str = "auto"  # a name of api.parsers.formats
    reasoning_parser: str = "auto"
    max_queue_tokens: int = 2**20  # prompt tokens that wait for their first token; 0: no limit
    shared_prompts: tuple[TokenizeRequest, ...] = ()  # what all tenants may share in the cache
    first_token_seconds: float = 0.0  # until the first token; 0: no limit
    request_seconds: float = 0.0  # for the whole answer; 0: no limit
    keep_alive_seconds: float = 15.0  # 0: no keep-alive comments
    tokenizer_threads: int = 2
