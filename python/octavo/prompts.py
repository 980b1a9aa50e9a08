"""The forms in which prompts may be given, made one."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidArgumentError
from octavo.loading import LoadedModel
from octavo.sampling_params import SamplingParams

_KEYS = {"prompt", "prompt_token_ids"}


@dataclass
class Prompt:
    """A prompt that is ready for the engine.

    Attributes:
        text: None when token ids were given.
        ids: its token ids.
    """

    text: str | None
    ids: list[int]

    def truncated(self, params: SamplingParams) -> Prompt:
        """Only the last ``truncate_prompt_tokens`` tokens, where that was asked for."""
        keep = params.truncate_prompt_tokens
        return self if keep is None or keep >= len(self.ids) else Prompt(self.text, self.ids[-keep:])


def no_adapter(lora_request: object) -> None:
    """Refuse an adapter, which a request of vLLM may name."""
    if lora_request is not None:
        raise InvalidArgumentError(
            f"lora_request must be None: adapters are not supported, got {lora_request!r}",
            param="lora_request",
        )


def is_single(prompts: Any) -> bool:
    """Whether this is one prompt and not a list of them."""
    if isinstance(prompts, (str, Mapping)):
        return True
    return (
        isinstance(prompts, Sequence)
        and bool(prompts)
        and all(isinstance(p, numbers.Integral) and not isinstance(p, bool) for p in prompts)
    )


def prepare(model: LoadedModel, prompts: Sequence[Any]) -> list[Prompt]:
    """Each prompt — a string, a list, array or tensor of token ids, or a map with one of them — with its token ids.

    Raises:
        InvalidArgumentError: a prompt of another form, empty, or with ids out of the vocabulary; it is numbered.
    """
    texts: dict[int, str] = {}
    ids: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        text, given = _split(prompt, i)
        if given is not None:
            ids[i] = model.prompt_ids(given)
        if text is not None:
            texts[i] = text
    missing = [i for i in texts if i not in ids]
    if missing:
        tokenizer = model.require_tokenizer("prompts as text")
        for i, encoded in zip(missing, tokenizer.encode_batch([texts[i] for i in missing]), strict=True):
            if not encoded:
                raise InvalidArgumentError(
                    f"prompt {i} is empty: it must have at least one token", param="prompt"
                )
            ids[i] = encoded
    return [Prompt(texts.get(i), ids[i]) for i in range(len(prompts))]


def _split(prompt: Any, index: int) -> tuple[str | None, Any]:
    if isinstance(prompt, str):
        return prompt, None
    if isinstance(prompt, Mapping):
        if unknown := set(prompt) - _KEYS:
            raise InvalidArgumentError(
                f"prompt {index} has the key {sorted(map(str, unknown))[0]!r}; known are prompt and prompt_token_ids",
                param="prompt",
            )
        text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        if ids is not None or isinstance(text, str):
            return (text if isinstance(text, str) else None), ids
    elif hasattr(prompt, "__iter__") and not isinstance(prompt, bytes):
        return None, prompt
    raise InvalidArgumentError(
        f"prompt {index} must be a string, a list of token ids or a map with prompt or prompt_token_ids, got "
        f"{type(prompt).__name__}",
        param="prompt",
    )
