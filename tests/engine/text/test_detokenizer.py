"""Text equals the reference tokenizer's for any ids, and any split of the ids gives the same text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_reference import token_table

from octavo import _engine
from octavo.errors import InvalidArgumentError

TEXTS = [
    "Hello, world! It's 2026, isn't it?",
    "Emoji 😀👨‍👩‍👧‍👦🏳️‍🌈 and flags 🇯🇵🇫🇷",
    "日本語のテキスト、中文文本, 한국어 텍스트",
    "def f(x):\n\treturn {k: v**2 for k, v in x.items()}  # комментарий\n\n\n",
    "   spaces\t\ttabs \r\n mixed \u200b zero width \u00a0 nbsp \ufeff bom",
    "naïve café Ångström e\u0301 combining, العربية עברית हिन्दी",
    "\x00\x01\x7f control \U0010ffff \ue000 private",
]

BYTES_TABLE = token_table([bytes([b]) for b in range(256)])  # a token for every byte
relaxed = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def streamed(table, ids, **options) -> list[str]:
    stream = _engine.TextStream(table, **options)
    return [stream.push(i)[0] for i in ids] + [stream.finish()[0]]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip(smollm2_text, text):
    ids = smollm2_text.encode(text)
    assert smollm2_text.table.decode(ids) == text == smollm2_text.decode(ids)
    assert "".join(streamed(smollm2_text.table, ids)) == text


@relaxed
@given(data=st.data(), skip=st.booleans())
def test_any_ids_give_the_reference_text(smollm2_text, data, skip):
    rare = st.sampled_from(smollm2_text.special)
    ids = data.draw(st.lists(st.one_of(st.integers(0, smollm2_text.vocab - 1), rare), max_size=40))
    assert smollm2_text.table.decode(ids, skip) == smollm2_text.decode(ids, skip)


@relaxed
@given(text=st.text(max_size=30), cut=st.integers(0, 60), skip=st.booleans())
def test_ids_cut_inside_characters_give_the_reference_text(smollm2_text, text, cut, skip):
    ids = smollm2_text.encode(text)
    for part in (ids[:cut], ids[cut:], ids[cut:] + ids[:cut]):
        assert smollm2_text.table.decode(part, skip) == smollm2_text.decode(part, skip)
        assert "".join(streamed(smollm2_text.table, part)) == smollm2_text.decode(part)


@relaxed
@given(raw=st.binary(max_size=24))
def test_invalid_bytes_become_one_replacement_per_maximal_subpart(raw):
    want = raw.decode("utf-8", "replace")
    assert BYTES_TABLE.decode(list(raw)) == want
    pieces = streamed(BYTES_TABLE, list(raw))
    assert "".join(pieces) == want


@relaxed
@given(
    raw=st.lists(
        st.sampled_from(
            [0x41, 0x80, 0xBF, 0xC1, 0xC3, 0xE0, 0xE3, 0xED, 0xA0, 0xF0, 0x9F, 0x90, 0xF4, 0x8F, 0xF5]
        )
    )
)
def test_invalid_bytes_near_every_border_of_utf8(raw):
    assert "".join(streamed(BYTES_TABLE, raw)) == bytes(raw).decode("utf-8", "replace")


@relaxed
@given(raw=st.binary(max_size=24), cuts=st.lists(st.integers(0, 24), max_size=6))
def test_any_split_into_tokens_gives_the_same_text(raw, cuts):
    edges = sorted({0, len(raw), *(min(c, len(raw)) for c in cuts)})
    pieces = [raw[a:b] for a, b in itertools.pairwise(edges)] or [b""]
    assert token_table(pieces).decode(list(range(len(pieces)))) == raw.decode("utf-8", "replace")


def test_plain_text_is_released_at_once():
    assert streamed(BYTES_TABLE, list(b"abc")) == ["a", "b", "c", ""]


def test_incomplete_characters_are_held_and_flushed_once():
    emoji = "😀".encode()
    assert streamed(BYTES_TABLE, [0x61, *emoji, 0x62]) == ["a", "", "", "", "😀", "b", ""]
    assert streamed(BYTES_TABLE, [0x61, *emoji[:3]]) == ["a", "", "", "", "\ufffd"]


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens_are_skipped_only_when_asked(smollm2_text, skip):
    ids = [1, *smollm2_text.encode("user\nHi 😀"), 2]
    assert smollm2_text.table.decode(ids, skip) == smollm2_text.decode(ids, skip)
    assert ("<|im_start|>" in smollm2_text.table.decode(ids, skip)) is not skip


@relaxed
@given(data=st.data(), skip=st.booleans())
def test_sentencepiece_text_equals_the_reference(llama_text, data, skip):
    # Byte tokens only as whole characters: for an invalid run the reference counts bytes, not subparts.
    characters = [[3 + b for b in c.encode()] for c in "aé日😀 "]
    words = [[i] for i in (*range(3), *range(259, llama_text.vocab))]
    drawn = data.draw(st.lists(st.sampled_from(words + characters), max_size=12))
    ids = [i for word in drawn for i in word]
    assert llama_text.table.decode(ids, skip) == llama_text.decode(ids, skip)


def test_a_leading_space_is_dropped_at_position_zero_only(llama_text):
    the, cat, space = 260, 261, 259
    assert llama_text.table.decode([the, cat]) == "the cat"
    assert llama_text.table.decode([space, space, the]) == "  the"
    assert llama_text.table.decode([1, the]) == "the"
    assert llama_text.table.decode([1, the], False) == "<s> the"
    assert llama_text.table.decode([the, cat], at_text_start=False) == " the cat"
    assert "".join(streamed(llama_text.table, [the, cat])) == " the cat"  # output continues the prompt
    assert "".join(streamed(llama_text.table, [the, cat], at_text_start=True)) == "the cat"


def test_ids_outside_the_table_stand_for_no_text(smollm2_text):
    ids = smollm2_text.encode("ab")
    odd = [-1, *ids, smollm2_text.vocab, 2**31 - 1]
    assert smollm2_text.table.decode(odd) == "ab"


def test_a_table_that_does_not_fit_together_is_refused():
    flags = np.zeros(2, np.uint8)
    with pytest.raises(InvalidArgumentError, match="one entry more than special: 3, got 2"):
        _engine.TokenTable(b"ab", np.array([0, 1], np.uint32), flags, False)
    for offsets in ([0, 2, 1], [1, 1, 2], [0, 1, 3]):
        with pytest.raises(InvalidArgumentError, match="ascend from 0 to the number of bytes, 2"):
            _engine.TokenTable(b"ab", np.array(offsets, np.uint32), flags, False)


def test_a_token_has_its_true_bytes(smollm2_text):
    ids = smollm2_text.encode("😀 日本")
    assert b"".join(smollm2_text.table.token(i) for i in ids) == "😀 日本".encode()
    with pytest.raises(InvalidArgumentError, match="id must be in"):
        smollm2_text.table.token(smollm2_text.vocab)
