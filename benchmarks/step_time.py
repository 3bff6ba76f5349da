"""Estimate how long a training step of `training/configs/base.yaml` takes on 4 GPUs, from sizes and data sheets.

    .venv/bin/python -m benchmarks.step_time

A forward pass costs two operations per parameter and token. Log-probabilities of actor and reference take one each, the
update four: forward, recomputation, and twice as much backward. Generation reads the weights and the cache of all
sequences for each token of the longest response.
"""

from __future__ import annotations

from benchmarks.markdown import table

PARAMETERS, CACHE = 8.3e9, 28 * 2 * 4 * 128 * 2
"""Parameters of Qwen2.5-VL-7B, and bytes of its KV cache per token: layers, keys and values, heads, width, bfloat16."""
GPUS, TENSOR_PARALLEL, PROMPTS, RESPONSES = 4, 2, 128, 8
PROMPT, RESPONSE, LONGEST = 780, 300, 1024
"""Tokens of a prompt, of a mean response (an assumption) and of the longest one."""
HARDWARE = {"A100": (312e12, 2.0e12), "H100": (989e12, 3.35e12)}
"""Peak operations (bfloat16) and memory bandwidth per second, from NVIDIA's data sheets of the 80 GB SXM modules."""
COMPUTE, BANDWIDTH, HOST_LINK = 0.4, 0.6, 25e9
"""Shares of the peaks that are reached, and bytes per second between a GPU and the host: assumptions."""
STEPS = 300


def estimate(operations: float, bandwidth: float) -> dict[str, float]:
    """Return the seconds of the parts of a step."""
    rows = PROMPTS * RESPONSES
    forward = 2 * PARAMETERS * rows * (PROMPT + RESPONSE) / (GPUS * operations * COMPUTE)
    read = 2 * PARAMETERS / TENSOR_PARALLEL + CACHE * rows * (PROMPT + RESPONSE / 2) / GPUS
    prefill = 2 * PARAMETERS * PROMPTS * PROMPT / (GPUS * operations * COMPUTE)
    transfers = 2 * (3 * 4 + 8) * PARAMETERS / GPUS / HOST_LINK  # weights for three uses, moments for one
    return {
        "generation": prefill + LONGEST * read / (bandwidth * BANDWIDTH),
        "log-probabilities": 2 * forward,
        "update": 4 * forward,
        "transfers": transfers,
    }


def main() -> None:
    """Print the table of docs/training.md."""
    found = {name: estimate(*peaks) for name, peaks in HARDWARE.items()}
    rows = [[part, *(f"{seconds[part]:.0f} s" for seconds in found.values())] for part in next(iter(found.values()))]
    rows.append(["a step", *(f"{sum(seconds.values()) / 60:.1f} min" for seconds in found.values())])
    rows.append([f"{STEPS} steps", *(f"{STEPS * sum(seconds.values()) / 3600:.0f} h" for seconds in found.values())])
    print(table(["", *(f"4 x {name}" for name in found)], rows))


if __name__ == "__main__":
    main()
