"""OpenVINO GenAI's continuous batching as a worker: usage: openvino_worker.py MODEL THREADS [PROPERTY=VALUE ...]

Runs under an interpreter that has openvino_genai; needs nothing else. One line of JSON in, one out.
"""

import json
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def main() -> None:
    model, threads = sys.argv[1], int(sys.argv[2])
    properties = dict(p.split("=", 1) for p in sys.argv[3:])
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 4  # GiB
    scheduler.enable_prefix_caching = True
    scheduler.max_num_seqs = 64
    pipe = genai.ContinuousBatchingPipeline(
        model, scheduler, "CPU", properties={"INFERENCE_NUM_THREADS": threads, **properties}
    )
    next_id = 0
    for line in sys.stdin:
        shots = json.loads(line)["shots"]
        start = time.perf_counter()
        handles = []
        for shot in shots:
            config = genai.GenerationConfig(
                max_new_tokens=shot["max_tokens"], ignore_eos=True, do_sample=False
            )
            ids = ov.Tensor(np.array([shot["prompt"]], dtype=np.int64))
            handles.append(pipe.add_request(next_id, ids, config))
            next_id += 1
        records = [{"chunks": [], "finished": None, "tokens": 0} for _ in shots]
        while pipe.has_non_finished_requests():
            pipe.step()
            now = time.perf_counter() - start
            for handle, record in zip(handles, records, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        record["tokens"] += len(output.generated_ids)
                    record["chunks"].append(now)
                    record["finished"] = now
        print(json.dumps({"records": records}), flush=True)


main()
