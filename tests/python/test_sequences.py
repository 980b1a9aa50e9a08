"""n, best_of and beam search through ``LLM`` and ``AsyncEngine``."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, AsyncEngine, RequestOutputKind, SamplingParams
from octavo.errors import InvalidArgumentError, RefusedError

PROMPT = [(7 * i * i + 3) % 256 for i in range(40)]


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama of random float32 weights, with logits of a realistic spread, and no tokenizer."""
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=None, bos_token_id=None,
        initializer_range=0.15, tie_word_embeddings=False,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("spread-llama")
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tiny_llama: Path) -> Iterator[LLM]:
    with LLM(
        tiny_llama, skip_tokenizer_init=True, kv_cache_dtype="float32", num_gpu_blocks_override=128,
        max_num_seqs=16, seed=0,
    ) as llm:  # fmt: skip
        yield llm


@pytest.fixture(scope="module")
def reference(tiny_llama: Path) -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    from transformers import LlamaForCausalLM

    # For many small steps: threads would wait for each other longer than they work.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield LlamaForCausalLM.from_pretrained(tiny_llama, attn_implementation="eager").eval()
    torch.set_num_threads(before)


def hot(**kwargs: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "seed": 5, "max_tokens": 12, "detokenize": False} | kwargs)


def run(llm: LLM, params: SamplingParams) -> list[Any]:
    return llm.generate([PROMPT], params, use_tqdm=False)[0].outputs


def test_n_completions_with_their_logprobs(tiny: LLM) -> None:
    outputs = run(tiny, hot(n=4, logprobs=0))
    assert [o.index for o in outputs] == [0, 1, 2, 3]
    assert all(o.finish_reason == "length" and len(o.token_ids) == 12 for o in outputs)
    assert len({tuple(o.token_ids) for o in outputs}) == 4
    for o in outputs:
        assert o.cumulative_logprob == pytest.approx(
            sum(p[t].logprob for p, t in zip(o.logprobs, o.token_ids, strict=True))
        )
    assert [o.token_ids for o in run(tiny, hot(n=2))] == [o.token_ids for o in outputs[:2]]


def test_best_of(tiny: LLM) -> None:
    every = sorted(run(tiny, hot(n=6, logprobs=0)), key=lambda o: -o.cumulative_logprob)
    best = run(tiny, hot(n=2, best_of=6))
    assert [o.token_ids for o in best] == [o.token_ids for o in every[:2]]
    assert [o.cumulative_logprob for o in best] == pytest.approx([o.cumulative_logprob for o in every[:2]])


@pytest.mark.parametrize("early", [True, pytest.param(False, marks=pytest.mark.slow), "never"])
@pytest.mark.parametrize(
    "penalty", [1.0, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.0, 2.5)), -1.5]
)
def test_beam_search_is_transformers(tiny: LLM, reference: Any, early: bool | str, penalty: float) -> None:
    torch = pytest.importorskip("torch")
    free = run(tiny, SamplingParams(n=4, use_beam_search=True, max_tokens=20, detokenize=False))
    ends = sorted({free[0].token_ids[6], free[1].token_ids[9], free[3].token_ids[19]})
    lengths = set()
    for eos, width, n in (([], 1, 1), ([], 4, 4), (ends[:1], 3, 3), (ends, 4, 4), (ends, 5, 2)):
        want = reference.generate(
            torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT), dtype=torch.int64), do_sample=False,
            num_beams=width, num_return_sequences=n, max_new_tokens=20, length_penalty=penalty, early_stopping=early,
            eos_token_id=eos or None, pad_token_id=0, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        got = run(
            tiny,
            SamplingParams(
                n=n, use_beam_search=True, beam_width=width, length_penalty=penalty, early_stopping=early,
                max_tokens=20, stop_token_ids=eos, detokenize=False,
            ),
        )  # fmt: skip
        rows = want.sequences[:, len(PROMPT) :].tolist()
        for output, row in zip(got, rows, strict=True):
            length = len(output.token_ids)
            assert output.token_ids == row[:length]
            assert set(row[length:]) <= set(eos[:1])  # how transformers fills what is shorter
            lengths.add(length)
            assert output.finish_reason == ("stop" if output.token_ids[-1] in eos else "length")
        if width > 1:
            assert [o.score for o in got] == pytest.approx(want.sequences_scores.tolist(), rel=1e-5)
        assert [o.score for o in got] == pytest.approx(
            [o.cumulative_logprob / len(o.token_ids) ** penalty for o in got]
        )
    if penalty <= 1:  # above, the longest win
        assert len(lengths) > 1, "the end tokens ended nothing"
    tiny.model.engine.audit()
    assert tiny.stats()["live_blocks"] == 0


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_request_that_outgrows_the_cache_gets_what_it_holds(tiny_llama: Path, n: int) -> None:
    with LLM(
        tiny_llama, skip_tokenizer_init=True, num_gpu_blocks_override=16, max_model_len=256, max_num_seqs=8
    ) as small:
        limit = small.model.engine.new_token_limit(65, n)
        # 4 of the 16 blocks of 16 are shared; each sequence begins with the prompt's last token.
        assert limit == 12 // n * 16 - 1
        params = hot(n=n, max_tokens=250, ignore_eos=True)
        outputs = small.generate([[5 + i for i in range(65)]], params, use_tqdm=False)[0].outputs
        assert [(len(o.token_ids), o.finish_reason) for o in outputs] == [(limit, "length")] * n
        for prompt, sequences in ((-1, 1), (1, 0)):
            with pytest.raises(InvalidArgumentError, match="must be at least"):
                small.model.engine.new_token_limit(prompt, sequences)


def test_beams_are_the_same_in_company_and_after_preemption(tiny: LLM, tiny_llama: Path) -> None:
    params = SamplingParams(n=4, use_beam_search=True, beam_width=4, max_tokens=40, detokenize=False)
    alone = [(o.token_ids, o.score) for o in run(tiny, params)]
    with LLM(
        tiny_llama, skip_tokenizer_init=True, kv_cache_dtype="float32", num_gpu_blocks_override=22, max_num_seqs=16,
        max_num_batched_tokens=16,
    ) as small:  # fmt: skip
        mixed = [params, hot(n=3, max_tokens=40), params, hot(max_tokens=60), params]
        outputs = small.generate([PROMPT] * 5, mixed, use_tqdm=False)
        for i in (0, 2, 4):
            assert [(o.token_ids, o.score) for o in outputs[i].outputs] == alone
        small.model.engine.audit()
        assert small.stats()["preemptions"] > 0
        assert small.stats()["live_blocks"] == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 5}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"logprobs": 0}, "logprobs"),
        ({"logit_bias": {1: 1.0}}, "logit_bias"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"stop": ["a"]}, "stop"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"beam_width": 0}, "beam_width"),
        ({"output_kind": RequestOutputKind.DELTA}, "use_beam_search"),
    ],
)
def test_what_has_no_place_in_a_beam_search_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgumentError, match=param) as caught:
        SamplingParams(**{"use_beam_search": True, "beam_width": 4} | fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields", [{"beam_width": 4}, {"length_penalty": 2.0}, {"early_stopping": True}, {"best_of": 1, "n": 2}]
)
def test_what_would_have_no_effect_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(fields))):
        SamplingParams(**fields)
    with pytest.raises(InvalidArgumentError, match="best_of"):
        SamplingParams(best_of=2, output_kind=RequestOutputKind.DELTA)


def test_too_many_sequences_are_refused(tiny: LLM) -> None:
    for fields in ({"n": 17}, {"best_of": 10**9}, {"use_beam_search": True, "beam_width": 17}):
        with pytest.raises(RefusedError, match="at most max_num_seqs, the 16 sequences") as caught:
            run(tiny, SamplingParams(**fields))
        assert caught.value.param in fields
    with pytest.raises(RefusedError, match="n must be at most"):
        asyncio.run(_first(tiny, SamplingParams(n=10**9)))


async def _first(llm: LLM, params: SamplingParams) -> None:
    async for _ in AsyncEngine(llm.model).generate(PROMPT, params):
        break


def test_streams_of_choices_add_up(tiny: LLM) -> None:
    want = run(tiny, hot(n=3))

    async def main() -> list[list[int]]:
        engine = AsyncEngine(tiny.model)
        tokens: list[list[int]] = [[], [], []]
        async for output in engine.generate(PROMPT, hot(n=3, output_kind=RequestOutputKind.DELTA)):
            for o in output.outputs:
                tokens[o.index] += o.token_ids
        return tokens

    assert asyncio.run(main()) == [o.token_ids for o in want]


def test_a_fork_of_a_finished_completion_shares_what_is_cached(tiny: LLM) -> None:
    first = tiny.generate([PROMPT], hot(max_tokens=50), use_tqdm=False)[0]
    history = PROMPT + first.outputs[0].token_ids
    for position in (None, 64, 71, 20):
        kept = history[:position]
        before = tiny.stats()["tokens_computed"]
        fork = tiny.fork(first, hot(temperature=0.0, max_tokens=5), position=position)
        tiny.model.engine.audit()
        assert fork.prompt_token_ids == kept
        greedy = tiny.generate([kept], hot(temperature=0.0, max_tokens=5), use_tqdm=False)[0]
        assert fork.outputs[0].token_ids == greedy.outputs[0].token_ids
        assert fork.num_cached_tokens >= (len(kept) - 1) // 16 * 16
        assert tiny.stats()["tokens_computed"] - before <= 2 * 4 + 2 * 16


def test_forks_draw_numbers_of_their_own_and_the_same_ones_each_time(tiny: LLM) -> None:
    def tree() -> list[list[int]]:
        root = tiny.generate([PROMPT], hot(), use_tqdm=False)[0]
        forks = [tiny.fork(root, position=40) for _ in range(3)]
        deeper = tiny.fork(forks[0], position=40, sampling_params=hot(n=2))
        return [o.token_ids for out in [root, *forks, deeper] for o in out.outputs]

    first = tree()
    assert len({tuple(tokens) for tokens in first}) == 6
    assert tree() == first


def test_a_fork_counts_what_was_generated_before_it_as_output(tiny: LLM) -> None:
    fields = {
        "temperature": 0.0,
        "frequency_penalty": 2.0,
        "presence_penalty": 2.0,
        "repetition_penalty": 1.5,
    }
    whole = run(tiny, hot(**fields, max_tokens=30))[0].token_ids
    half = tiny.generate([PROMPT], hot(**fields, max_tokens=15), use_tqdm=False)[0]
    rest = tiny.fork(half)
    assert half.outputs[0].token_ids + rest.outputs[0].token_ids == whole


def test_forks_that_cannot_be(tiny: LLM) -> None:
    output = tiny.generate([PROMPT], hot(n=2, max_tokens=4), use_tqdm=False)[0]
    for kwargs, param in (
        ({"position": 0}, "position"),
        ({"position": 45}, "position"),
        ({"choice": 2}, "choice"),
        ({"choice": -1}, "choice"),
    ):
        with pytest.raises(InvalidArgumentError, match=param):
            tiny.fork(output, **kwargs)
    with pytest.raises(InvalidArgumentError, match="pickled"):
        tiny.fork(pickle.loads(pickle.dumps(output)))
    for _ in range(60):  # more tokens than the cache holds
        tiny.generate([PROMPT], hot(max_tokens=1), use_tqdm=False)
    with pytest.raises(InvalidArgumentError, match="new prompt"):
        tiny.fork(output)


def test_a_fork_that_the_window_has_no_room_for_is_refused_with_the_numbers(tiny_llama: Path) -> None:
    with LLM(tiny_llama, skip_tokenizer_init=True, num_gpu_blocks_override=8, max_model_len=64) as small:
        full = small.generate([PROMPT[:40]], hot(max_tokens=None, ignore_eos=True), use_tqdm=False)[0]
        engine = AsyncEngine(small.model)

        async def later() -> None:
            engine.fork(full, hot())

        for fork in (lambda: small.fork(full, hot()), lambda: asyncio.run(later())):
            with pytest.raises(
                RefusedError, match="context length is 64 tokens.*raise max_model_len"
            ) as caught:
                fork()
            assert (caught.value.code, caught.value.value, caught.value.limit) == (
                "context_length_exceeded",
                64,
                64,
            )


@pytest.mark.parametrize("request_", [None, "abc", 5, [1]])
def test_what_is_no_output_cannot_be_forked(tiny: LLM, request_: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="request must be an output of this engine"):
        tiny.fork(request_)


def test_a_running_request_is_forked(tiny: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(tiny.model)
        outputs: list[Any] = []
        forks: list[Any] = []
        tiny.model.engine.inject_fault("hold", seconds=0.004, times=60)
        async for output in engine.generate(PROMPT, hot(n=2, max_tokens=60, temperature=0.0), "root"):
            outputs.append(output)
            if len(outputs) == 10:
                forks.append(engine.fork("root", hot(temperature=0.0, max_tokens=10), choice=1))
                forks.append(engine.fork(output, hot(temperature=0.0, max_tokens=10), "named", position=50))
        root = outputs[-1].outputs[0].token_ids
        for fork in forks:
            last = [o async for o in fork][-1]
            at = len(last.prompt_token_ids) - len(PROMPT)
            assert last.prompt_token_ids == PROMPT + root[:at]
            assert last.outputs[0].token_ids == root[at : at + 10]
            assert last.num_cached_tokens >= 32
        with pytest.raises(InvalidArgumentError, match="no request runs"):
            engine.fork("root")

    asyncio.run(main())
    tiny.model.engine.audit()
    assert tiny.stats()["live_blocks"] == 0
