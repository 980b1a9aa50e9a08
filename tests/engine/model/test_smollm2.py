"""The default model against transformers in float32 on its dequantized weights."""

import argparse
import inspect
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from octavo import _engine
from octavo.models.checkpoint import describe, open_checkpoint

ROOT = Path(__file__).parents[3]
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about rain.",
    "List three prime numbers above 100.",
    "Explain what a hash table is.",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue?",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are",
    "SELECT name FROM users WHERE",
    "Give me a recipe for pancakes.",
    "What is 17 times 23?",
    "Summarize the plot of Hamlet in one sentence.",
    "Who wrote The Origin of Species, and when?",
    "A train leaves Berlin at 9:15 and",
    "Name the planets of the solar system in order.",
    "What does the word 'octavo' mean?",
    "Dear Sir or Madam,\n\nI am writing to",
    "5 4 3 2 1",
    "¿Cómo estás? Ça va? 你好!",
]


@pytest.fixture(scope="module")
def reference(float32_folder):
    from transformers import AutoTokenizer, LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(
        float32_folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    return model, AutoTokenizer.from_pretrained(float32_folder)


@torch.no_grad()
def reference_logits(model, ids):
    return model(torch.tensor([ids])).logits[0].numpy()


def prompt_ids(tokenizer, question):
    if question[-1] not in "?.":
        return tokenizer(question)["input_ids"]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def make_runner(path, kv_dtype):
    checkpoint = open_checkpoint(path)
    return _engine.ModelRunner(
        checkpoint.config,
        checkpoint.weights,
        kv_dtype=kv_dtype,
        threads=2,
        max_tokens=256,
        max_positions=2304,
    )


def greedy(runner, prompt, count):
    ids, start = list(prompt), 0
    for _ in range(count):
        logits = runner.logits(ids, start=start, positions=[len(ids) - 1])
        start = len(ids)
        ids.append(int(logits[0].argmax()))
    return ids


@pytest.fixture(scope="module")
def runners(float32_folder):
    return {kv_dtype: make_runner(float32_folder, kv_dtype) for kv_dtype in ("f32", "f16")}


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_logits_and_64_greedy_tokens_equal_the_reference(runners, reference, question):
    model, tokenizer = reference
    prompt = prompt_ids(tokenizer, question)
    ids = greedy(runners["f32"], prompt, 64)
    want = reference_logits(model, ids)
    exact, half = (np.abs(runners[kv_dtype].logits(ids) - want).max() for kv_dtype in ("f32", "f16"))
    print(f"largest logit difference: {exact:.2e} (KV f32), {half:.2e} (KV f16)")
    assert exact <= 1e-3
    # Along one and the same text: the reference would have drawn each of these tokens too.
    for position in range(len(prompt) - 1, len(ids) - 1):
        if want[position].argmax() != ids[position + 1]:
            second, first = np.sort(want[position])[-2:]
            assert first - second < 1e-3, position


@pytest.fixture
def one_torch_thread():
    """For many small steps: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize(("length_penalty", "early_stopping"), [(1.0, False), (0.5, "never"), (2.0, True)])
def test_beam_search_equals_the_reference(float32_folder, reference, length_penalty, early_stopping):
    from octavo import LLM, SamplingParams

    model, tokenizer = reference
    prompts = [prompt_ids(tokenizer, question) for question in (QUESTIONS[0], QUESTIONS[7])]
    params = SamplingParams(
        n=4, use_beam_search=True, beam_width=4, length_penalty=length_penalty, early_stopping=early_stopping,
        max_tokens=16,
    )  # fmt: skip
    with LLM(float32_folder, kv_cache_dtype="float32", max_model_len=256, num_gpu_blocks_override=128) as llm:
        ends = llm.model.eos_token_ids
        outputs = llm.generate(prompts, params, use_tqdm=False)
    for ids, output in zip(prompts, outputs, strict=True):
        want = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64), do_sample=False,
            num_beams=4, num_return_sequences=4, max_new_tokens=16, length_penalty=length_penalty,
            early_stopping=early_stopping, eos_token_id=ends, pad_token_id=ends[0], return_dict_in_generate=True,
            output_scores=True,
        )  # fmt: skip
        for got, row in zip(output.outputs, want.sequences[:, len(ids) :].tolist(), strict=True):
            assert got.token_ids == row[: len(got.token_ids)]
            assert set(row[len(got.token_ids) :]) <= {ends[0]}
        assert [o.score for o in output.outputs] == pytest.approx(want.sequences_scores.tolist(), abs=1e-4)


def real_text():
    docs = [
        inspect.getdoc(o) for o in (argparse, logging.Logger, threading.Thread, json.dumps, subprocess.Popen)
    ]
    licence = (ROOT / "LICENSE").read_text()
    return "\n\n".join([*(d for d in docs if d), licence])


def perplexity(logits, ids):
    return float(
        torch.exp(torch.nn.functional.cross_entropy(torch.from_numpy(logits[:-1]), torch.tensor(ids[1:])))
    )


@pytest.mark.slow
def test_perplexity_of_the_quantized_file_is_that_of_its_float32_weights(smollm2, reference):
    model, tokenizer = reference
    ids = tokenizer(real_text())["input_ids"][:2100]
    assert len(ids) >= 2001
    want = perplexity(reference_logits(model, ids), ids)
    got = perplexity(make_runner(smollm2, "f16").logits(ids), ids)
    print(f"perplexity over {len(ids) - 1} tokens: {got:.4f}, reference {want:.4f} ({got / want - 1:+.3%})")
    assert abs(got / want - 1) < 0.003


PEAK = """
import sys, threading, time
from pathlib import Path
from octavo import _engine
from octavo.models.checkpoint import open_checkpoint

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

checkpoint = open_checkpoint(Path(sys.argv[1]))
before = peak = resident()
loading = True

def watch():
    global peak
    while loading:
        peak = max(peak, resident())
        time.sleep(0.0005)

watcher = threading.Thread(target=watch)
watcher.start()
runner = _engine.ModelRunner(checkpoint.config, checkpoint.weights, threads=2, max_tokens=16, max_positions=64)
loading = False
watcher.join()
print((peak - before) / runner.packed_bytes, runner.packed_bytes / checkpoint.weights.file_bytes)
"""


def test_loading_grows_memory_by_little_more_than_the_packed_size(smollm2):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(smollm2)], check=True, capture_output=True, text=True
    )
    growth, packed = map(float, done.stdout.split())
    assert growth <= 1.2
    assert packed <= 1.05


def test_the_description_of_the_default_model(smollm2):
    info = describe(open_checkpoint(smollm2), "f16")
    assert (info.architecture, info.container) == ("llama", "gguf")
    assert info.formats == {"q4_1": 210, "f32": 61, "q8_0": 1}
    assert (info.layers, info.heads, info.kv_heads, info.head_dim) == (30, 9, 3, 64)
    assert info.parameters == 134_515_008
    assert info.kv_bytes_per_token == 30 * 2 * 3 * 64 * 2
    assert info.tied_embeddings
