"""`LLM` answers, in order, with vLLM's fields, and ends cleanly however it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import EngineDeadError, InvalidArgumentError, ModelError, RefusedError

GREEDY = SamplingParams(temperature=0, max_tokens=8)
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


def assert_all_blocks_are_free(llm: LLM) -> None:
    """Within a second: the counters are those of the engine's last step."""
    for _ in range(100):
        stats = llm.stats()
        if not (stats["running"] or stats["waiting"] or stats["live_blocks"]):
            return
        time.sleep(0.01)
    raise AssertionError(stats)


def texts(outputs: list[Any]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def test_chat_answers(llm: LLM) -> None:
    (output,) = llm.chat(QUESTION, SamplingParams(temperature=0, max_tokens=40), use_tqdm=False)
    assert "Paris" in output.outputs[0].text
    assert output.finished and output.outputs[0].finished()
    assert output.outputs[0].finish_reason == "stop" and output.outputs[0].stop_reason is None
    assert output.prompt is not None and output.prompt.endswith("<|im_start|>assistant\n")
    assert output.prompt_token_ids == llm.get_tokenizer().encode(output.prompt)


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts: list[Any] = [f"Count: {i}, {i + 1}," for i in range(6)]
    params = [SamplingParams(temperature=0, max_tokens=2 + 3 * ((7 * i) % 4)) for i in range(6)]
    together = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in together] == prompts
    assert [len(o.outputs[0].token_ids) for o in together] == [p.max_tokens for p in params]
    alone = [llm.generate(prompt, p, use_tqdm=False)[0] for prompt, p in zip(prompts, params, strict=True)]
    assert [o.outputs[0].token_ids for o in alone] == [o.outputs[0].token_ids for o in together]
    assert texts(alone) == texts(together)
    assert len({o.request_id for o in together}) == 6


def test_every_form_of_prompt(llm: LLM) -> None:
    text = "The sky is"
    ids = llm.get_tokenizer().encode(text)
    forms: list[Any] = [text, ids, {"prompt": text}, {"prompt_token_ids": ids}, np.array(ids), tuple(ids)]
    outputs = llm.generate(forms, GREEDY, use_tqdm=False)
    assert len(set(texts(outputs))) == 1
    assert all(o.prompt_token_ids == ids for o in outputs)
    assert [o.prompt for o in outputs] == [text, None, text, None, None, None]
    assert texts(llm.generate(prompt_token_ids=[ids, ids], sampling_params=GREEDY, use_tqdm=False)) == texts(
        outputs[:2]
    )
    assert texts(llm.generate(prompt_token_ids=ids, sampling_params=GREEDY, use_tqdm=False)) == texts(
        outputs[:1]
    )
    assert llm.generate([], GREEDY) == []
    torch = pytest.importorskip("torch")
    array = np.array(ids)
    for one in (
        array,
        torch.tensor(ids),
        list(array),
        [array],
        [list(array)],
        [torch.tensor(ids)],
        array[None],
    ):
        (output,) = llm.generate(one, GREEDY, use_tqdm=False)
        assert output.prompt_token_ids == ids and {type(token) for token in output.prompt_token_ids} == {int}
    (output,) = llm.generate({"prompt_token_ids": array}, GREEDY, use_tqdm=False)
    assert output.prompt_token_ids == ids


@pytest.mark.parametrize(
    ("prompts", "match"),
    [
        ("", "prompt 0 is empty"),
        (["a", ""], "prompt 1 is empty"),
        ([[]], "at least one token"),
        ([[49152]], "49152, which is out of vocabulary"),
        ([[-1]], "-1, which is out of vocabulary"),
        ([[True]], "list of integers"),
        ([[1.5]], "list of integers"),
        (np.array([1.5]), "got float"),
        ([np.array([1.5])], "list of integers"),
        (np.array(3), "prompts must be"),
        ([np.array(3)], "list of token ids"),
        ([{"text": "x"}], "'text'"),
        ([{}], "prompt 0 must be"),
        ([None], "prompt 0 must be"),
        ([b"x"], "prompt 0 must be"),
        ("a\ud800", "lone surrogate"),
        (None, "either prompts or prompt_token_ids"),
    ],
)
def test_prompts_that_cannot_be_used(llm: LLM, prompts: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        llm.generate(prompts, GREEDY, use_tqdm=False)


def test_a_prompt_longer_than_the_window_is_refused_and_nothing_runs(llm: LLM) -> None:
    with pytest.raises(RefusedError, match="1024") as caught:
        llm.generate([[5] * 10, [5] * 2000], GREEDY, use_tqdm=False)
    assert caught.value.value == 2000 and caught.value.limit in (1023, 1024)
    assert_all_blocks_are_free(llm)
    (output,) = llm.generate(
        [[5] * 2000], SamplingParams(max_tokens=2, truncate_prompt_tokens=20), use_tqdm=False
    )
    assert len(output.prompt_token_ids) == 20


@pytest.mark.slow
def test_answers_end_where_the_window_does(llm: LLM) -> None:
    for max_tokens in (None, 500):
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        (output,) = llm.generate([[5] * 1020], params, use_tqdm=False)
        assert len(output.outputs[0].token_ids) == 4 and output.outputs[0].finish_reason == "length"


def test_stops(llm: LLM) -> None:
    prompt = "1, 2, 3, 4, 5,"
    base = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=20), use_tqdm=False)[0].outputs[0]
    assert "8" in base.text
    cut = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=20, stop=["8"]), use_tqdm=False)[
        0
    ].outputs[0]
    assert cut.text == base.text[: base.text.index("8")]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", "8")
    with_stop = SamplingParams(temperature=0, max_tokens=20, stop="8", include_stop_str_in_output=True)
    assert llm.generate(prompt, with_stop, use_tqdm=False)[0].outputs[0].text == cut.text + "8"
    token = base.token_ids[3]
    by_id = SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[token])
    got = llm.generate(prompt, by_id, use_tqdm=False)[0].outputs[0]
    assert (got.finish_reason, got.stop_reason) == ("stop", token)
    assert got.token_ids[-1] == token and got.token_ids == base.token_ids[: base.token_ids.index(token) + 1]


@pytest.mark.slow
def test_seeds_and_temperature(llm: LLM) -> None:
    def run(**kwargs: Any) -> list[tuple[int, ...]]:
        outputs = llm.generate(
            ["Once upon a time"] * 4, SamplingParams(max_tokens=12, **kwargs), use_tqdm=False
        )
        return [tuple(o.outputs[0].token_ids) for o in outputs]

    assert len(set(run(seed=7))) == 1
    assert run(seed=7) == run(seed=7)
    assert len(set(run())) > 1
    assert len(set(run(temperature=0))) == 1
    assert run(temperature=0) == run(top_p=0) == run(top_k=1) == run(temperature=1e-7)


def test_logprobs(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2, ignore_eos=True)
    (output,) = llm.generate("The capital of France is", params, use_tqdm=False)
    choice = output.outputs[0]
    assert choice.logprobs is not None and len(choice.logprobs) == 5
    for token, position in zip(choice.token_ids, choice.logprobs, strict=True):
        assert len(position) == 3  # greedy: the chosen token is the first of the three
        assert position[token].rank == 1
        ranked = sorted(position.values(), key=lambda p: p.rank or 0)
        assert [p.rank for p in ranked] == [1, 2, 3]
        assert [p.logprob for p in ranked] == sorted((p.logprob for p in ranked), reverse=True)
        assert position[token].decoded_token == llm.get_tokenizer().decode([token])
    chosen = sum(p[t].logprob for t, p in zip(choice.token_ids, choice.logprobs, strict=True))
    assert choice.cumulative_logprob == pytest.approx(chosen, abs=1e-4)
    assert (
        "".join(p[t].decoded_token or "" for t, p in zip(choice.token_ids, choice.logprobs, strict=True))
        == choice.text
    )
    prompt = output.prompt_logprobs
    assert prompt is not None and len(prompt) == len(output.prompt_token_ids) and prompt[0] is None
    for token, position in zip(output.prompt_token_ids[1:], prompt[1:], strict=True):
        assert position is not None and token in position and 2 <= len(position) <= 3
    bare = llm.generate("x", GREEDY, use_tqdm=False)[0]
    assert (
        bare.prompt_logprobs is None
        and bare.outputs[0].logprobs is None
        and bare.outputs[0].cumulative_logprob is None
    )
    zero = llm.generate("x", SamplingParams(max_tokens=2, logprobs=0), use_tqdm=False)[0].outputs[0]
    assert zero.logprobs is not None and all(len(position) == 1 for position in zero.logprobs)


def test_the_prefix_cache_shows(llm: LLM) -> None:
    ids = [(i * 37) % 40000 + 100 for i in range(200)]
    first, second = (llm.generate([ids], GREEDY, use_tqdm=False)[0] for _ in range(2))
    assert first.num_cached_tokens == 0 and 160 <= second.num_cached_tokens < 200
    assert first.outputs == second.outputs


def test_metrics(llm: LLM) -> None:
    metrics = llm.generate("Hi", GREEDY, use_tqdm=False)[0].metrics
    assert metrics is not None
    times = [
        metrics.arrival_time,
        metrics.first_scheduled_time,
        metrics.first_token_time,
        metrics.last_token_time,
    ]
    assert times == sorted(times) and times[0] > 0
    assert 0 < metrics.time_to_first_token < 60


def test_chat_in_its_variants(llm: LLM) -> None:
    outputs = llm.chat([QUESTION, [{"role": "user", "content": "Say hello."}]], GREEDY, use_tqdm=False)
    assert len(outputs) == 2
    assert llm.chat(QUESTION, GREEDY, use_tqdm=False)[0].outputs == outputs[0].outputs
    (plain,) = llm.chat(QUESTION, GREEDY, use_tqdm=False, chat_template="{{ messages[0].content }} It is")
    assert plain.prompt == QUESTION[0]["content"] + " It is"
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is the city of"}]
    (more,) = llm.chat(
        begun, GREEDY, use_tqdm=False, add_generation_prompt=False, continue_final_message=True
    )
    assert more.outputs[0].text.startswith(" Paris")
    with pytest.raises(InvalidArgumentError, match="at least one message"):
        llm.chat([], GREEDY)


def test_the_roles_of_a_chat_are_those_of_the_api(llm: LLM) -> None:
    from octavo.chat_roles import ROLES
    from octavo_gateway.protocol.chat import ChatMessage

    assert get_args(get_type_hints(ChatMessage)["role"]) == ROLES
    with pytest.raises(InvalidArgumentError, match=r"messages\[1\].role must be one of .* got 'wizard'"):
        llm.chat(
            [{"role": "user", "content": "a"}, {"role": "wizard", "content": "b"}], GREEDY, use_tqdm=False
        )


def test_the_progress_bar(llm: LLM) -> None:
    class Bar:
        made: list[Any] = []  # noqa: RUF012

        def __init__(self, **kwargs: Any) -> None:
            self.total, self.n, self.closed = kwargs["total"], 0, False
            Bar.made.append(self)

        def update(self, n: int) -> None:
            self.n += n

        def set_postfix_str(self, text: str, refresh: bool) -> None:
            assert "tokens/s" in text

        def close(self) -> None:
            self.closed = True

    llm.generate(["a", "b", "c"], GREEDY, use_tqdm=Bar)
    assert [(b.total, b.n, b.closed) for b in Bar.made] == [(3, 3, True)]


def test_parameters_that_do_not_fit_the_prompts(llm: LLM) -> None:
    with pytest.raises(InvalidArgumentError, match=r"one per prompt \(2\), got 3"):
        llm.generate(["a", "b"], [GREEDY] * 3, use_tqdm=False)
    with pytest.raises(InvalidArgumentError, match="priority"):
        llm.generate(["a", "b"], GREEDY, use_tqdm=False, priority=[1])
    assert len(llm.generate(["a", "b"], GREEDY, use_tqdm=False, priority=[1, 0])) == 2


def test_several_threads_at_once(llm: LLM) -> None:
    want = [llm.generate(f"Thread {i} says", GREEDY, use_tqdm=False)[0].outputs for i in range(4)]
    got: list[Any] = [None] * 4

    def work(i: int) -> None:
        got[i] = llm.generate(f"Thread {i} says", GREEDY, use_tqdm=False)[0].outputs

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


def test_an_interrupt_frees_everything_and_is_raised_again(llm: LLM) -> None:
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a b c"] * 8, SamplingParams(max_tokens=1000, ignore_eos=True), use_tqdm=False)
    timer.join()
    assert_all_blocks_are_free(llm)
    assert llm.generate("a", GREEDY, use_tqdm=False)[0].finished


def test_no_step_runs_while_paused(llm: LLM) -> None:
    with llm.paused():
        steps = llm.stats()["steps"]
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(llm.generate("a", GREEDY, use_tqdm=False)))
        thread.start()
        thread.join(0.3)
        assert not done and llm.stats()["steps"] == steps
    thread.join()
    assert done[0][0].finished


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_weights_and_cache_as_torch_tensors(tiny_llama: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    tensors = load_file(tiny_llama / "model.safetensors")
    with LLM(tiny_llama, skip_tokenizer_init=True, kv_cache_dtype=dtype, num_gpu_blocks_override=8) as llm:
        with pytest.raises(InvalidArgumentError, match="paused"):
            llm.kv_view(0)
        llm.generate([list(range(1, 21))], SamplingParams(temperature=0, max_tokens=2), use_tqdm=False)
        with llm.paused():
            norm = llm.weight_view("model.layers.1.input_layernorm.weight")
            assert torch.equal(norm, tensors["model.layers.1.input_layernorm.weight"])
            down = llm.weight_view("model.layers.0.mlp.down_proj.weight")
            assert torch.equal(down.flatten(0, 2)[:64], tensors["model.layers.0.mlp.down_proj.weight"])
            assert (
                down.data_ptr() == llm.weight_view("model.layers.0.mlp.down_proj.weight").data_ptr()
            )  # no copy
            keys, values = llm.kv_view(0)
            assert keys.shape == (8, 2, 16, 16) and values.shape == (8, 2, 16, 16)
            assert keys.dtype == {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
            # Layer 0's values of the first token: its normed embedding times the value projection.
            x = tensors["model.embed_tokens.weight"][1]
            x = x * torch.rsqrt(x.square().mean() + 1e-5) * tensors["model.layers.0.input_layernorm.weight"]
            want = (tensors["model.layers.0.self_attn.v_proj.weight"] @ x).view(2, 16)
            close = (
                ((values[:, :, 0, :].float() - want).abs().amax(dim=(1, 2)) < 0.05)
                .nonzero()
                .flatten()
                .tolist()
            )
            assert len(close) == 1  # one block begins with that token
            with pytest.raises(InvalidArgumentError, match="layer must be from 0 to 1, got 2"):
                llm.kv_view(2)
            with pytest.raises(ModelError, match="no_such_weight"):
                llm.weight_view("no_such_weight")
    assert float(norm[0]) == float(
        tensors["model.layers.1.input_layernorm.weight"][0]
    )  # the view keeps its memory


def test_quantized_weights_have_no_view(llm: LLM) -> None:
    with llm.paused(), pytest.raises(ModelError, match="q4_1"):
        llm.weight_view("model.layers.0.mlp.down_proj.weight")


def test_use_after_shutdown(tiny_llama: Path) -> None:
    with LLM(tiny_llama, skip_tokenizer_init=True) as llm:
        assert len(llm.generate([[1, 2]], GREEDY, use_tqdm=False)[0].outputs[0].token_ids) == 8
        with pytest.raises(InvalidArgumentError, match="tokenizer"):
            llm.generate("text", GREEDY, use_tqdm=False)
        with pytest.raises(InvalidArgumentError, match="tokenizer"):
            llm.chat(QUESTION)
    llm.shutdown()  # a second time does nothing
    for call in (lambda: llm.generate([[1]], GREEDY, use_tqdm=False), llm.stats, llm.pause):
        with pytest.raises(EngineDeadError, match="shut down"):
            call()


@pytest.mark.slow
def test_tensors_in_place_of_files(tiny_llama: Path) -> None:
    """The same tokens from a folder, from torch tensors with a folder and with a configuration, as transformers'."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, LlamaForCausalLM

    reference = LlamaForCausalLM.from_pretrained(tiny_llama).eval()
    tensors = {name: tensor for name, tensor in reference.state_dict().items()}
    config = AutoConfig.from_pretrained(tiny_llama)
    prompt = [3, 141, 59, 26, 5, 35]
    want = reference.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0)[
        0, 6:
    ].tolist()
    params = SamplingParams(temperature=0, max_tokens=24)
    common = {"skip_tokenizer_init": True, "kv_cache_dtype": "f32", "max_model_len": 64}
    for model, weights in (
        (tiny_llama, None),
        (tiny_llama, tensors),
        (config, tensors),
        (config.to_dict(), tensors),
    ):
        with LLM(model, weights=weights, **common) as llm:
            assert llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids == want
    with pytest.raises(ModelError, match="the model has no tensor"):
        LLM(config, weights={"model.embed_tokens.weight": tensors["model.embed_tokens.weight"]}, **common)


def test_adapters_are_refused_by_name(tiny_llama: Path) -> None:
    with LLM(tiny_llama, skip_tokenizer_init=True, num_gpu_blocks_override=16) as llm:
        params = SamplingParams(max_tokens=1)
        assert llm.generate([1, 2], params, use_tqdm=False, lora_request=None)
        with pytest.raises(InvalidArgumentError, match="lora_request must be None"):
            llm.generate([1, 2], params, use_tqdm=False, lora_request="x")


def test_models_and_sizes_that_do_not_fit(tiny_llama: Path, smollm2: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 256, the positions"):
        LLM(tiny_llama, max_model_len=257)
    with pytest.raises(InvalidArgumentError, match="kv_cache_memory leaves no room"):
        LLM(tiny_llama, kv_cache_memory=10, skip_tokenizer_init=True)
    with pytest.raises(InvalidArgumentError, match="configuration or a folder"):
        LLM(smollm2, weights={})
    with pytest.raises(ModelError, match="no tokenizer"):
        LLM(tiny_llama)
    with pytest.raises(InvalidArgumentError, match="tensor_parallel_size"):
        LLM(tensor_parallel_size=2)


def test_a_seed_for_the_whole_engine(tiny_llama: Path) -> None:
    def run(seed: int | None) -> list[list[int]]:
        with LLM(tiny_llama, skip_tokenizer_init=True, seed=seed) as llm:
            outputs = llm.generate([[1, 2, 3]] * 3, SamplingParams(max_tokens=10), use_tqdm=False)
            return [o.outputs[0].token_ids for o in outputs]

    assert run(5) == run(5) and len({tuple(ids) for ids in run(5)}) == 3
    assert run(5) != run(6) and run(None) != run(None)


def test_defaults_of_the_models_generation_config(tiny_llama: Path, tmp_path: Path) -> None:
    import json
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(tiny_llama, folder)
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.0, "max_new_tokens": 3, "top_k": None})
    )
    with LLM(folder, skip_tokenizer_init=True) as llm:
        params = llm.get_default_sampling_params()
        assert (params.temperature, params.max_tokens, params.top_k) == (0.0, 3, 0)
        assert len(llm.generate([[1, 2]], use_tqdm=False)[0].outputs[0].token_ids) == 3
    with LLM(folder, skip_tokenizer_init=True, generation_config="vllm") as llm:
        assert llm.get_default_sampling_params() == SamplingParams()


def run_script(code: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False
    )


START = """
import os, sys, threading, time
from octavo import LLM, SamplingParams
llm = LLM(sys.argv[1] if len(sys.argv) > 1 else {model!r}, skip_tokenizer_init=True)
params = SamplingParams(temperature=0, max_tokens=5)
print(llm.generate([[1, 2]], params, use_tqdm=False)[0].outputs[0].token_ids, flush=True)
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",  # a global left to the interpreter
        pytest.param("del llm", marks=pytest.mark.slow),
        pytest.param("llm.shutdown()", marks=pytest.mark.slow),
        pytest.param("sys.exit(0)", marks=pytest.mark.slow),
        pytest.param("keep = [llm]; keep.append(keep)", marks=pytest.mark.slow),  # in a cycle
        pytest.param(
            "threading.Thread(target=lambda: llm.generate([[1]] * 50, SamplingParams(max_tokens=200), use_tqdm=False), "
            "daemon=True).start(); time.sleep(0.2)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_process_ends_cleanly(tiny_llama: Path, ending: str) -> None:
    done = run_script(START.format(model=str(tiny_llama)) + ending)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")
    assert "Traceback" not in done.stderr and "leaked" not in done.stderr


def test_use_after_fork_raises(tiny_llama: Path) -> None:
    code = (
        START.format(model=str(tiny_llama))
        + """
pid = os.fork()
if pid == 0:
    from octavo.errors import EngineDeadError
    try:
        llm.generate([[1, 2]], params, use_tqdm=False)
    except EngineDeadError as error:
        print("child:", error, flush=True)
        sys.exit(7)
_, status = os.waitpid(pid, 0)
print("child ended", os.waitstatus_to_exitcode(status))
print(llm.generate([[1, 2]], params, use_tqdm=False)[0].finished)
"""
    )
    done = run_script(code)
    assert done.returncode == 0, done.stderr
    assert (
        "os.fork()" in done.stdout
        and "child ended 7" in done.stdout
        and done.stdout.rstrip().endswith("True")
    )


@pytest.mark.slow
def test_neither_torch_nor_transformers_is_imported(smollm2: Path) -> None:
    code = """
import sys
from octavo import LLM, SamplingParams
with LLM(max_model_len=256) as llm:
    llm.chat([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=3), use_tqdm=False)
print({"torch", "transformers", "gguf", "safetensors"} & set(sys.modules))
"""
    done = run_script(code)
    assert done.stdout.strip() == "set()", done.stderr


def test_prompts_may_come_from_a_generator(llm: LLM) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=2)
    texts = ["One two", "Red green"]
    want = llm.generate(texts, greedy, use_tqdm=False)
    got = llm.generate((text for text in texts), greedy, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in got] == [o.outputs[0].token_ids for o in want]


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("prompts", {"prompts": 5}),
        ("priority", {"prompts": "a", "priority": ["x"]}),
        ("priority", {"prompts": "a", "priority": [2**31]}),
        ("priority", {"prompts": "a", "priority": [True]}),
    ],
)
def test_wrong_arguments_are_named(llm: LLM, name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=name) as caught:
        llm.generate(**kwargs, use_tqdm=False)
    assert caught.value.param == name


def test_the_instruction_set_can_be_named(tiny_llama: Path) -> None:
    with LLM(tiny_llama, isa="baseline", skip_tokenizer_init=True, max_model_len=64) as llm:
        assert llm.model.engine.info()["isa"] == "baseline"
        (output,) = llm.generate([[1, 2, 3]], GREEDY, use_tqdm=False)
        assert len(output.outputs[0].token_ids) == GREEDY.max_tokens
    with pytest.raises(ModelError, match='isa "avx9" is no instruction set') as error:
        LLM(tiny_llama, isa="avx9", skip_tokenizer_init=True)
    assert error.value.param == "isa"
