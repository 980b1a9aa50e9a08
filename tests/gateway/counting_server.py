"""`octavo serve ARGUMENTS` that counts what it holds and answers each line of its input with a line of JSON.

There is no such way into a server that users start.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
from collections import Counter

from octavo.cli import main


class _Heap(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
            "keepcost",
        )
    ]


def answer() -> None:
    heap = ctypes.CDLL(None).mallinfo2
    heap.restype = _Heap
    for _ in sys.stdin:
        gc.collect()
        kinds = Counter(type(thing).__qualname__ for thing in gc.get_objects())
        now = heap()
        held = {"blocks": sys.getallocatedblocks(), "native": now.uordblks + now.hblkhd, "objects": kinds}
        print(json.dumps(held), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    sys.exit(main(["serve", *sys.argv[1:]]))
