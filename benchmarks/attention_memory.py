"""Measure memory and time of attention as the text grows, forward and backward.

    python benchmarks/attention_memory.py

The plain equation needs a matrix of n×n weights, so twice the text needs four times the memory. This is the row "one
n×n matrix". In all other rows memory grows linearly (the column "×" is the growth), because a mask is stored as rules
and computed in chunks of queries. Time is different: full and causal attention still compare every token with every
other; only the window and the sparse pattern compare fewer.

Each cell runs in a new process, because peak memory never decreases. The values are the growth compared with a short
text, so they do not include the libraries.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

# torch is imported late: a new process inherits the peak memory of the one that starts it

LENGTHS = (2048, 4096, 8192, 16384)
LONGEST_MATRIX = 4096
KINDS = ("full", "causal", "causal + padding", "window", "sparse", "one n×n matrix")
D_MODEL, HEADS, WINDOW = 64, 2, 128


def main() -> None:
    print(f"d_model {D_MODEL}, {HEADS} heads, window {WINDOW}; megabytes more than for a short text, seconds, growth\n")
    print(" " * 17 + "".join(f"{n:>12,} tokens    ×" for n in LENGTHS))
    for kind in KINDS:
        print(f"{kind:17}", end="", flush=True)
        before = None
        for n in LENGTHS:
            if kind == KINDS[-1] and n > LONGEST_MATRIX:
                break
            megabytes, seconds = measure_in_new_process(kind, n)
            growth = "" if before is None else f"{megabytes / before:.1f}"
            print(f" {megabytes:7.0f} MB {seconds:5.1f} s {growth:>4}", end="", flush=True)
            before = max(megabytes, 1e-9)
        print()


def measure_in_new_process(kind: str, n: int) -> tuple[float, float]:
    out = subprocess.run([sys.executable, __file__, kind, str(n)], check=True, capture_output=True, text=True).stdout
    megabytes, seconds = json.loads(out)
    return megabytes, seconds


def measure(kind: str, n: int) -> tuple[float, float]:
    from cutaway.nn import kernels

    kernels.MAX_DENSE_ENTRIES = 0  # use chunks for the short text too, so that all code is loaded before measuring
    forward_and_backward(kind, 2 * WINDOW)
    before, start = peak_megabytes(), time.perf_counter()
    forward_and_backward(kind, n)
    return peak_megabytes() - before, time.perf_counter() - start


def forward_and_backward(kind: str, n: int) -> None:
    import torch

    from cutaway.nn.attention import MultiHeadAttention
    from cutaway.nn.kernels import attend_exact, attend_fused
    from cutaway.nn.masks import Causal, Mask, causal_mask
    from cutaway.nn.sparse_masks import SlidingWindow, Strided

    text = Mask(range(n), range(n))
    padded = Mask(range(n), range(n), is_token=torch.arange(n)[None] < n - 10)
    masks = {
        "full": text,
        "causal": text & Causal(),
        "causal + padding": padded & Causal(),
        "window": text & Causal() & SlidingWindow(WINDOW),
        "sparse": text & Causal() & Strided(WINDOW),
    }
    attention = MultiHeadAttention(D_MODEL, HEADS, attend_fused if kind in masks else attend_exact)
    x = torch.randn(1, n, D_MODEL, requires_grad=True)
    attention(x, mask=masks[kind] if kind in masks else causal_mask(n)).sum().backward()


def peak_megabytes() -> float:
    """Return the peak memory of this process. Linux counts in kilobytes, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
