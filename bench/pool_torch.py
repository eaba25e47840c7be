#!/usr/bin/env python3
"""pool_torch.py: PyTorch's caching allocators, as bench/pool prints them.

One block taken and given back: torch.empty() on the device and in pinned
memory. Called by `pool --torch PYTHON`, or by hand. The interpreter's own
cost is measured with a tensor of one byte on the CPU and printed as well.
"""

import argparse
import json
import time

import torch


def pairs_of(take, pairs):
    start = time.perf_counter_ns()
    for _ in range(pairs):
        block = take()
        del block
    return (time.perf_counter_ns() - start) / pairs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=6 << 20)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--machine", default="")
    parser.add_argument("--json", action="store_true")
    opt = parser.parse_args()

    version = torch.__version__
    candidates = [
        (f"torch {version} empty, cuda",
         lambda: torch.empty(opt.bytes, dtype=torch.uint8, device="cuda")),
        (f"torch {version} empty, pinned",
         lambda: torch.empty(opt.bytes, dtype=torch.uint8, pin_memory=True)),
        (f"torch {version} empty, 1 byte, cpu",
         lambda: torch.empty(1, dtype=torch.uint8)),
    ]
    for name, take in candidates:
        pairs = 4
        while pairs < 1 << 20 and pairs_of(take, pairs) * pairs < 1e7:
            pairs *= 2
        ns = sorted(pairs_of(take, pairs) for _ in range(opt.repeats))
        last = opt.repeats - 1
        median, least = ns[last // 2], ns[0]
        low, high = ns[last // 10], ns[last - last // 10]
        if opt.json:
            print(json.dumps({
                "bench": "pool", "machine": opt.machine, "what": name,
                "bytes": opt.bytes, "mode": "same", "threads": 1,
                "pairs": pairs, "repeats": opt.repeats,
                "median_ns": round(median, 1), "min_ns": round(least, 1),
                "p10_ns": round(low, 1), "p90_ns": round(high, 1)}))
        else:
            print(f"{name:<34} {'same':<6} {1:>7} {median:>12.1f} "
                  f"{least:>12.1f} {low:>12.1f} {high:>12.1f}")


if __name__ == "__main__":
    main()
