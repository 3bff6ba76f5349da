"""Estimate how long a training step of `training/configs/base.yaml` takes on 4 GPUs, from model sizes and data sheets.

    .venv/bin/python -m benchmarks.step_time

A forward pass takes two FLOPs per parameter and token. Computing the log-probabilities of the actor and of the
reference model takes one forward pass each. The update costs as much as four forward passes: a forward pass, its
recomputation, and a backward pass, which costs as much as two. For each token of the longest response, generation reads
the weights and the KV cache of all sequences.
"""

from __future__ import annotations

from benchmarks.markdown import table

PARAMETERS, CACHE = 8.3e9, 28 * 2 * 4 * 128 * 2
"""Number of parameters of Qwen2.5-VL-7B, and bytes of its KV cache per token: layers x 2 (keys and values) x KV heads x
head dimension x 2 (bytes of a bfloat16)."""
GPUS, TENSOR_PARALLEL, PROMPTS, RESPONSES = 4, 2, 128, 8
PROMPT, RESPONSE, LONGEST = 780, 300, 1024
"""Numbers of tokens in a prompt, in an average response (an assumption), and in the longest response."""
HARDWARE = {"A100": (312e12, 2.0e12), "H100": (989e12, 3.35e12)}
"""Peak bfloat16 FLOPS, and peak memory bandwidth in bytes per second, from NVIDIA's data sheets for the 80 GB SXM
modules."""
COMPUTE, BANDWIDTH, HOST_LINK = 0.4, 0.6, 25e9
"""Assumptions: achieved fractions of peak FLOPS and of peak bandwidth, and bytes per second between a GPU and the
host."""
STEPS = 300


def estimate(operations: float, bandwidth: float) -> dict[str, float]:
    """Return the seconds taken by each part of a step, given a GPU's peak FLOPS and bandwidth in bytes per second."""
    rows = PROMPTS * RESPONSES
    forward = 2 * PARAMETERS * rows * (PROMPT + RESPONSE) / (GPUS * operations * COMPUTE)
    read = 2 * PARAMETERS / TENSOR_PARALLEL + CACHE * rows * (PROMPT + RESPONSE / 2) / GPUS
    prefill = 2 * PARAMETERS * PROMPTS * PROMPT / (GPUS * operations * COMPUTE)
    transfers = 2 * (3 * 4 + 8) * PARAMETERS / GPUS / HOST_LINK  # there and back: weights three times, moments once
    return {
        "generation": prefill + LONGEST * read / (bandwidth * BANDWIDTH),
        "log-probabilities": 2 * forward,
        "update": 4 * forward,
        "transfers": transfers,
    }


def main() -> None:
    """Print the table of docs/training.md."""
    by_gpu = {name: estimate(*peaks) for name, peaks in HARDWARE.items()}
    rows = [[part, *(f"{seconds[part]:.0f} s" for seconds in by_gpu.values())] for part in next(iter(by_gpu.values()))]
    rows.append(["a step", *(f"{sum(seconds.values()) / 60:.1f} min" for seconds in by_gpu.values())])
    rows.append([f"{STEPS} steps", *(f"{STEPS * sum(seconds.values()) / 3600:.0f} h" for seconds in by_gpu.values())])
    print(table(["", *(f"4 x {name}" for name in by_gpu)], rows))


if __name__ == "__main__":
    main()
