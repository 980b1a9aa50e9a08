"""Tokens drawn on a device are those that the host draws from the same logits; so are their scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from octavo import _engine
from octavo.errors import OctavoError

sampling = _engine.sampling
BACKEND = "cuda-emulated"
STATUS = {"ok": 0, "non_finite": 1, "all_masked": 2}


def make_params(fields: dict[str, object]) -> _engine.SamplingParams:
    params = _engine.SamplingParams()
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def host_draw(row: np.ndarray, params, state, position: int, choice: int) -> tuple[int, int]:
    """(status, token) of the sampler on the host."""
    try:
        return STATUS["ok"], sampling.sample(row, params, state, position, choice)
    except OctavoError as error:
        if "not finite" in str(error):
            return STATUS["non_finite"], -1
        assert "no token is left" in str(error), error
        return STATUS["all_masked"], -1


@st.composite
def any_params(draw: st.DrawFn, vocab: int) -> dict[str, object]:
    token = st.integers(0, vocab - 1)
    fields: dict[str, object] = {
        "temperature": draw(st.sampled_from([0.0, 0.01, 0.5, 1.0, 1.0, 3.0])),
        "top_k": draw(st.sampled_from([0, 0, 1, 2, 7, 50, 600, vocab])),
        "top_p": draw(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.999, 1e-6])),
        "min_p": draw(st.sampled_from([0.0, 0.0, 0.02, 0.7, 1.0])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "max_tokens": 8,
    }
    if draw(st.booleans()):
        fields["repetition_penalty"] = draw(st.sampled_from([1.0, 1.3, 0.8]))
        fields["presence_penalty"] = draw(st.sampled_from([0.0, 0.7, -0.4]))
        fields["frequency_penalty"] = draw(st.sampled_from([0.0, 0.9]))
    if draw(st.booleans()):
        fields["logit_bias"] = list(
            draw(st.dictionaries(token, st.sampled_from([-3.0, 2.5, 8.0]), max_size=9)).items()
        )
    if draw(st.integers(0, 3)) == 0:
        fields["bad_words"] = draw(st.lists(st.lists(token, min_size=1, max_size=3), min_size=1, max_size=4))
    if draw(st.integers(0, 3)) == 0:
        fields["allowed_token_ids"] = draw(st.lists(token, min_size=1, max_size=40, unique=True))
    if draw(st.integers(0, 3)) == 0:
        fields |= {
            "stop_token_ids": draw(st.lists(token, min_size=1, max_size=5, unique=True)),
            "min_tokens": 2,
        }
    if draw(st.booleans()):
        fields["logprobs"] = draw(st.sampled_from([0, 1, min(5, vocab), min(30, vocab)]))
    return fields


def any_rows(seed: int, steps: int, rows: int, vocab: int, kind: str) -> np.ndarray:
    """[steps, rows, vocab]"""
    random = np.random.default_rng(seed)
    logits = (random.normal(size=(steps, rows, vocab)) * random.choice([0.1, 3.0, 20.0])).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "masked":
        logits[random.random(logits.shape) < 0.7] = -np.inf
    elif kind == "broken":
        logits[:, :, random.integers(vocab)] = random.choice([np.nan, np.inf, -np.inf])
    return logits


@dataclass
class Twin:
    """One sequence, on the device and on the host."""

    params: _engine.SamplingParams
    fields: dict[str, object]
    prompt: list[int]
    choice: int
    state: object
    output: list[int] = field(default_factory=list)


@given(st.data())
@settings(max_examples=25, deadline=None, phases=[Phase.generate])
def test_the_device_draws_what_the_host_draws(data: st.DataObject) -> None:
    vocab = data.draw(st.sampled_from([1, 31, 64, 700, 1500]))
    kind = data.draw(st.sampled_from(["plain", "plain", "ties", "masked", "broken"]))
    count, steps = data.draw(st.integers(1, 4)), 3
    device = _engine.DeviceDraws(BACKEND, vocab)
    twins = []
    for i in range(count):
        fields = data.draw(any_params(vocab))
        prompt = data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=6))
        params = make_params(fields)
        twins.append(Twin(params, fields, prompt, i, sampling.SamplerState(params, prompt)))
        device.add(i, params, prompt, choice=i)
    late = data.draw(st.booleans())  # the host learns a token only after the next one was drawn
    logits = any_rows(data.draw(st.integers(0, 2**32)), steps, count, vocab, kind)
    for step in range(steps):
        if step == 2 and not late and data.draw(st.booleans()):
            device.forget_devices()
        rows = [(i, len(t.prompt) + len(t.output), ([*t.prompt, *t.output])[-1]) for i, t in enumerate(twins)]
        drawn = device.draw(logits[step], rows)
        if data.draw(st.booleans()) and not late:  # once more, as after a step that counted for nothing
            assert device.draw(logits[step], rows) == drawn
        for i, twin in enumerate(twins):
            check(twin, logits[step, i], rows[i][1], drawn[i])
            token = max(drawn[i][1], 0)
            if late and twin.output:
                device.accept(i, twin.output[-1])
            twin.output.append(token)
            twin.state.append(token)
            if not late:
                device.accept(i, token)


def check(twin: Twin, row: np.ndarray, position: int, drawn: tuple) -> None:
    status, token, scores, best = drawn
    assert (status, token) == host_draw(row, twin.params, twin.state, position, twin.choice), twin.fields
    if status != STATUS["ok"] or "logprobs" not in twin.fields:
        return
    chosen, top = sampling.score(row, token, twin.fields["logprobs"])
    assert scores[0] == chosen[0] and scores[2] == chosen[2]
    assert scores[1] == pytest.approx(chosen[1], abs=2e-6, rel=1e-6)
    assert [(t, r) for t, _, r in best] == [(t, r) for t, _, r in top]
    assert [p for _, p, _ in best] == pytest.approx([p for _, p, _ in top], abs=2e-6, rel=1e-6)


def test_beams_get_the_likeliest_tokens() -> None:
    vocab = 400
    device = _engine.DeviceDraws(BACKEND, vocab)
    params = make_params({"beam_width": 3, "n": 1, "temperature": 0.0, "stop_token_ids": [5, 6]})
    row = any_rows(3, 1, 1, vocab, "ties")[0]
    device.add(7, params, [1])
    status, _, _, best = device.draw(row, [(7, 1, 1)])[0]
    expected = sampling.best_tokens(row[0], 5)
    assert status == 0 and [(t, r) for t, _, r in best] == [(t, r) for t, _, r in expected]
    assert [p for _, p, _ in best] == pytest.approx([p for _, p, _ in expected], abs=2e-6)


def test_a_large_vocabulary_draws_the_same() -> None:
    vocab = 49152
    device = _engine.DeviceDraws(BACKEND, vocab)
    logits = any_rows(5, 1, 3, vocab, "plain")[0]
    fields = [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.95},
        {"top_k": 40, "min_p": 0.01, "logprobs": 3},
    ]
    made = [make_params({"seed": 11 + i} | f) for i, f in enumerate(fields)]
    for i, params in enumerate(made):
        device.add(i, params, [1, 2])
    for i, drawn in enumerate(device.draw(logits, [(i, 2, 2) for i in range(3)])):
        state = sampling.SamplerState(made[i], [1, 2])
        assert drawn[1] == sampling.sample(logits[i], made[i], state, 2, 0)
