"""How text is cut into words before BPE, by the names that GGUF files use (``tokenizer.ggml.pre``).

Each entry restates the pre-tokenizer of the tokenizer.json files that the models of that name were published with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str, letters: str = r"\p{L}") -> str:
    """The pattern that Llama 3 and Qwen share but for the length of a run of digits and what counts as a letter."""
    run = letters if letters == r"\p{L}" else f"[{letters}]"
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{run}+|{digits}"
        rf"| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _cased_words(suffix: str, digits: str) -> str:
    """Words cut where the case changes (Mistral's Tekken, GPT-4o)."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    first = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{first}{upper}*{lower}+{suffix}|{first}{upper}+{lower}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


@dataclass(frozen=True)
class Split:
    """A pre-tokenizer for byte-level BPE.

    Attributes:
        pattern: what one word is; None for GPT-2's own pattern.
        single_digits: digits are cut off one by one first.
        nfc: text is normalized to NFC first.
        ignore_merges: a word that is in the vocabulary is taken whole.
        add_bos: a text starts with the BOS token unless the file says otherwise.
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def install(self, backend: Tokenizer) -> None:
        """Set normalizer and pre-tokenizer of ``backend``."""
        from tokenizers import Regex, normalizers, pre_tokenizers

        steps: list[Any] = []
        if self.single_digits:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        if self.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None))
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
        if self.nfc:
            backend.normalizer = normalizers.NFC()


_GPT2 = Split()
_GPT_NEOX = Split(nfc=True)
_SINGLE_DIGITS = Split(single_digits=True)
_COMMAND_R = Split(single_digits=True, nfc=True)
_LLAMA3 = Split(_words(r"\p{N}{1,3}"), ignore_merges=True, add_bos=True)
_LLAMA3_WITHOUT_BOS = replace(_LLAMA3, add_bos=False)
_CL100K = Split(_words(r"\p{N}{1,3}"))
_QWEN2 = Split(_words(r"\p{N}"), nfc=True)
_QWEN35 = Split(_words(r"\p{N}", r"\p{L}\p{M}"), nfc=True)
_TEKKEN = Split(_cased_words("", r"\p{N}"), ignore_merges=True, add_bos=True)
_GPT4O = Split(_cased_words(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"), ignore_merges=True)

# Names with one split. A comment says what comes under a name that does not tell.
_NAMES: dict[Split, tuple[str, ...]] = {
    _GPT2: ("default", "gpt-2", "gpt2", "phi-2", "granite-docling"),
    _GPT_NEOX: ("olmo", "mpt"),  # OLMo 1 and OLMoE
    _SINGLE_DIGITS: ("smollm", "starcoder", "refact", "codeshell"),  # refact: Granite 3
    _COMMAND_R: ("command-r",),
    _LLAMA3: ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    _LLAMA3_WITHOUT_BOS: ("smaug-bpe",),  # SmolLM3
    _CL100K: ("dbrx", "glm4", "chatglm-bpe"),  # dbrx: OLMo 2, Phi-4, Granite 4
    _QWEN2: ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"),
    _QWEN35: ("qwen35",),
    _TEKKEN: ("tekken",),
    _GPT4O: ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),  # gpt-4o: gpt-oss, Phi-4-mini
}
_BY_NAME = {name: split for split, names in _NAMES.items() for name in names}


def known_names() -> list[str]:
    """The names that ``split_of`` takes."""
    return sorted(_BY_NAME)


def split_of(name: str) -> Split:
    """The split of that name.

    Raises:
        ModelError: the name is not known; guessing would give other token ids than the model was trained on.
    """
    split = _BY_NAME.get(name)
    if split is None:
        raise ModelError(
            f"tokenizer.ggml.pre is {name!r}, which is not known; known are {', '.join(known_names())}. A folder "
            "with the model's tokenizer.json can be given as the tokenizer instead",
            code="unsupported",
            param="tokenizer.ggml.pre",
        )
    return split
