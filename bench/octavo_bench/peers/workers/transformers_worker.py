"""transformers' generate() on a padded batch as a worker: usage: transformers_worker.py FOLDER THREADS DTYPE

Runs under an interpreter that has torch and transformers. One line of JSON in, one out.
"""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer


class Clock(BaseStreamer):
    """Notes when each step's tokens came."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.times: list = []
        self.prompt_seen = False

    def put(self, value) -> None:
        if self.prompt_seen:
            self.times.append(time.perf_counter() - self.start)
        self.prompt_seen = True

    def end(self) -> None:
        pass


def generate(model, shots) -> list:
    longest = max(len(s["prompt"]) for s in shots)
    output = max(s["max_tokens"] for s in shots)
    ids = torch.zeros(len(shots), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, shot in enumerate(shots):
        prompt = torch.tensor(shot["prompt"])
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    clock = Clock()
    # A streamer takes one row only; for a batch the end is what counts.
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
            streamer=clock if len(shots) == 1 else None,
        )
    finished = time.perf_counter() - clock.start
    times = clock.times or [finished]
    return [{"chunks": times, "finished": finished, "tokens": output} for _ in shots]


def main() -> None:
    folder, threads, dtype = sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3])
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    for line in sys.stdin:
        print(json.dumps({"records": generate(model, json.loads(line)["shots"])}), flush=True)


main()
