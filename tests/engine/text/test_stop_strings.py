"""Stop strings across token borders: nothing of a stop leaks, nothing else is held back, tokens are never lost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_reference import token_table

from octavo import _engine
from octavo.errors import InvalidArgumentError

BYTES_TABLE = token_table([bytes([b]) for b in range(256)])
relaxed = settings(max_examples=300, deadline=None)


def run(ids, stop, table=BYTES_TABLE, **options):
    """All deltas until a stop or the end, and the index of the stop string."""
    stream = _engine.TextStream(table, stop, **options)
    deltas = []
    for i in ids:
        text, tokens, found = stream.push(i)
        deltas.append((text, tokens))
        if found is not None:
            return deltas, found
    text, tokens, found = stream.finish()
    return [*deltas, (text, tokens)], found


def expected_cut(text: bytes, stops: list[bytes], include: bool):
    """By definition: the first byte at which a stop string ends; of those that end there the longest."""
    for end in range(1, len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], stops.index(longest)
    return text, None


pieces = st.lists(st.text("ab", max_size=4), max_size=12)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5)


@relaxed
@given(pieces=pieces, stop=stop_lists, include=st.booleans())
def test_text_is_cut_where_the_definition_says(pieces, stop, include):
    table = token_table([p.encode() for p in pieces] or [b""])
    deltas, found = run(range(len(pieces)), stop, table, include_stop_str_in_output=include)
    want, index = expected_cut("".join(pieces).encode(), [s.encode() for s in stop], include)
    assert ("".join(t for t, _ in deltas), found) == (want.decode(), index)


def unpaused(text: str, pauses: list[tuple[str, str]], paused: bool) -> list[bool]:
    """By definition, of each character: whether a stop string may end at it, and one that does lies outside whole."""
    out, inside, start = [], 0 if paused else None, 0
    for end in range(1, len(text) + 1):
        if inside is not None:
            closing = pauses[inside][1]
            if closing and text[start:end].endswith(closing):
                inside, start = None, end
            out.append(False)
            continue
        opened = [i for i, (opening, _) in enumerate(pauses) if text[start:end].endswith(opening)]
        if opened:
            inside, start = max(opened, key=lambda i: (len(pauses[i][0]), -i)), end
        out.append(inside is None)
    return out


def paused_cut(text: str, stops: list[str], pauses: list[tuple[str, str]], paused: bool):
    free = unpaused(text, pauses, paused)
    for end in range(1, len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s) and all(free[end - len(s) : end])]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], stops.index(longest)
    return text, None


marks = st.text("ab", min_size=1, max_size=3)


@relaxed
@given(
    pieces=pieces,
    stop=stop_lists,
    pauses=st.lists(st.tuples(marks, marks | st.just("")), min_size=1, max_size=2),
    paused=st.booleans(),
)
def test_stops_are_not_looked_for_in_pauses(pieces, stop, pauses, paused):
    """What is in a pause is not held back either."""
    table = token_table([p.encode() for p in pieces] or [b""])
    deltas, found = run(range(len(pieces)), stop, table, stop_pauses=pauses, stop_paused=paused)
    text = "".join(pieces)
    assert ("".join(t for t, _ in deltas), found) == paused_cut(text, stop, pauses, paused)
    if paused and pauses[0][1] == "":
        assert [t for t, _ in deltas[:-1]] == pieces


@relaxed
@given(pieces=pieces, stop=stop_lists)
def test_only_what_can_become_a_stop_is_held_back(pieces, stop):
    table = token_table([p.encode() for p in pieces] or [b""])
    stream = _engine.TextStream(table, stop)
    seen = released = ""
    for i, piece in enumerate(pieces):
        text, _, found = stream.push(i)
        if found is not None:
            return
        seen += piece
        released += text
        held = seen[len(released) :]
        prefixes = [s[:n] for s in stop for n in range(len(s)) if seen.endswith(s[:n])]
        assert held == max(prefixes, key=len)


@relaxed
@given(pieces=pieces, stop=stop_lists, include=st.booleans())
def test_a_token_travels_with_the_delta_that_releases_its_last_byte(pieces, stop, include):
    table = token_table([p.encode() for p in pieces] or [b""])
    deltas, found = run(range(len(pieces)), stop, table, include_stop_str_in_output=include)
    pushed = len(deltas) if found is not None else len(pieces)
    assert sum(n for _, n in deltas) == pushed  # none lost, none twice, those behind the stop included
    text = ""
    tokens = 0
    for i, (delta, n) in enumerate(deltas[:-1]):
        text += delta
        tokens += n
        ends = [len("".join(pieces[: k + 1])) for k in range(i + 1)]
        assert tokens == sum(end <= len(text) for end in ends)


def test_a_stop_of_many_tokens_never_leaks():
    deltas, found = run(b"ABCDEFGHIJKL", ["DEFGHIJ"])
    assert [t for t, _ in deltas] == ["A", "B", "C"] + [""] * 7
    assert [n for _, n in deltas] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 7]
    assert found == 0


def test_a_stop_that_never_comes_delays_nothing():
    assert [t for t, _ in run(b"hello", ["x" * 50])[0]] == ["h", "e", "l", "l", "o", ""]


def test_what_looked_like_a_stop_is_released_when_it_is_not():
    deltas, found = run(b"abcabd!", ["abcabc"])
    assert [t for t, _ in deltas] == ["", "", "", "", "", "abcabd", "!", ""]
    assert found is None


def test_held_text_is_released_at_the_end():
    deltas, found = run(b"say EN", ["END"])
    assert deltas[-1] == ("EN", 2)
    assert found is None


def test_the_first_to_end_wins_then_the_longest():
    assert run(b"xabcd", ["abcd", "bc"])[1] == 1
    deltas, found = run(b"xabc", ["bc", "abc", "c"])
    assert ("".join(t for t, _ in deltas), found) == ("x", 1)
    assert run(b"ab", ["ab", "ab"])[1] == 0


def test_a_stop_inside_one_token_cuts_that_token():
    table = token_table([b"one. ", b"two. Stop here. three"])
    deltas, _ = run([0, 1], ["Stop"], table)
    assert deltas == [("one. ", 1), ("two. ", 1)]
    deltas, _ = run([0, 1], ["Stop"], table, include_stop_str_in_output=True)
    assert deltas[-1] == ("two. Stop", 1)


def test_stops_of_many_bytes_per_character():
    deltas, found = run("答えは。終わり".encode(), ["。終"])
    assert ("".join(t for t, _ in deltas), found) == ("答えは", 0)
    # A character that shares its first bytes with the stop's is not lost.
    deltas, found = run("答え。絶".encode(), ["。終"])
    assert ("".join(t for t, _ in deltas), found) == ("答え。絶", None)


def test_an_incomplete_character_before_a_stop_keeps_its_token_apart():
    table = token_table([b"\xe3\x81", b"\x82ST", b"OP", b"x"])
    stream = _engine.TextStream(table, ["STOP"])
    assert stream.push(0) == ("", 0, None)
    assert stream.push(1) == ("あ", 1, None)  # the first token's last byte is out, the second's is held
    assert stream.held_tokens == 1
    assert stream.push(3) == ("STx", 2, None)
    stream = _engine.TextStream(table, ["STOP"])
    stream.push(0), stream.push(1)
    assert stream.push(2) == ("", 2, 0)


def test_tokens_without_text_travel_in_order():
    table = token_table([b"<s>", b"a", b"b"], special={0})
    stream = _engine.TextStream(table, ["bz"])
    assert stream.push(0) == ("", 1, None)
    assert stream.push(2) == ("", 0, None)
    assert stream.push(0) == ("", 0, None)
    assert stream.push(1) == ("ba", 3, None)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
def test_a_stop_token_leaves_the_text_before_it_intact(skip, include):
    table = token_table([b"<|end|>", b"Paris", b".", b"\xf0\x9f"], special={0})
    stream = _engine.TextStream(table, ["..."], include_stop_str_in_output=include, skip_special_tokens=skip)
    assert stream.push(1) == ("Paris", 1, None)
    assert stream.push(2) == ("", 0, None)
    shown = "<|end|>" if include and not skip else ""
    assert stream.finish_at_stop_token(0) == ("." + shown, 2, None)


def test_an_incomplete_character_before_a_stop_token_is_flushed_once():
    table = token_table([b"</s>", b"\xf0\x9f\x98"], special={0})
    stream = _engine.TextStream(table)
    assert stream.push(1) == ("", 0, None)
    assert stream.finish_at_stop_token(0) == ("\ufffd", 2, None)


def test_stops_count_only_behind_the_minimum_of_tokens():
    deltas, found = run(b"ab.cd.ef", ["."], min_tokens=3)
    assert ("".join(t for t, _ in deltas), found) == ("ab.cd", 0)
    # One that ends behind the minimum counts whole.
    deltas, found = run(b"xENDy", ["END"], min_tokens=2)
    assert ("".join(t for t, _ in deltas), found) == ("x", 0)


def test_without_a_table_tokens_pass_without_text():
    stream = _engine.TextStream(None)
    assert stream.push(5) == ("", 1, None)
    assert stream.finish_at_stop_token(6) == ("", 1, None)
    assert stream.finish() == ("", 0, None)


def test_a_fork_goes_on_alone():
    stream = _engine.TextStream(BYTES_TABLE, ["abc"])
    stream.push(ord("a"))
    fork = stream.fork()
    assert stream.push(ord("b")) == ("", 0, None)
    assert fork.push(ord("x")) == ("ax", 2, None)
    assert stream.push(ord("c")) == ("", 3, 0)


def test_many_stops_cost_little_per_token():
    stop = [f"stop number {i} of many" for i in range(1024)]
    stream = _engine.TextStream(BYTES_TABLE, stop)
    text = b"stop number 9 or stop number 77 of man, " * 250
    start = time.thread_time()
    out = "".join(stream.push(b)[0] for b in text)
    assert time.thread_time() - start < 0.5
    assert out + stream.finish()[0] == text.decode()


def test_empty_stop_strings_are_refused():
    with pytest.raises(InvalidArgumentError, match="non-empty"):
        _engine.TextStream(BYTES_TABLE, ["a", ""])
