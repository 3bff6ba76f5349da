"""Check training on the GPUs of this machine in minutes, with random models: bash training/scripts/gpu_smoke.sh

Stages: (A) local training, compared with the CPU; (B) memory and time of the presets with models of 2 to 8 billion
parameters; (C) TRL; (D) EasyR1's worker with NCCL, without vLLM; (E) EasyR1 with vLLM on four GPUs. Each check runs in
a process of its own, and prints PASS, FAIL or SKIP, its time, and its peak memory: the highest that nvidia-smi reports
of a GPU, minus what was in use before, or with --cpu, the resident memory of the check's processes.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch
import trl
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from tests.in_training.tiny import make_checkpoint, make_move_model
from tests.tiny_model import make_model
from vlmgym.cli.main import main as main_command
from vlmgym.training.config import Kind, TinySize

ROOT = Path(__file__).resolve().parents[1]
QUICK = ROOT / "tests" / "in_training" / "quick.toml"
EXAMPLE = ROOT / "examples" / "train_with_trl.py"
EASYR1 = Path(os.environ.get("EASYR1_PYTHON", ROOT / ".venv-easyr1" / "bin" / "python"))
VISION3: dict[str, Any] = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16}
VISION3 |= {"num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17]}
VISION2: dict[str, Any] = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
VISION2 |= {"fullatt_block_indexes": [7, 15, 23, 31], "window_size": 112}
MODELS: dict[str, tuple[Kind, dict[str, Any], tuple[int, ...]]] = {
    "tiny": ("qwen3_vl", {}, (64, 2, 2, 1, 128)),
    "Qwen3-VL-2B": ("qwen3_vl", VISION3, (2048, 28, 16, 8, 6144)),
    "Qwen3-VL-4B": ("qwen3_vl", VISION3, (2560, 36, 32, 8, 9728)),
    "Qwen2.5-VL-7B": ("qwen2_5_vl", VISION2, (3584, 28, 28, 4, 18944)),
}
"""Type, vision encoder, and of the language model: width, layers, attention heads, heads of keys and values, and width
of the feed-forward layers, as in the models on the Hub."""
VOCABULARY = 152_064
PRESETS = [("Qwen3-VL-2B", 24), ("Qwen3-VL-4B", 24), ("Qwen3-VL-4B", 80), ("Qwen2.5-VL-7B", 80)]
"""Models, and the GPU memory of the presets that they are measured with."""
DTYPES = {"float32": (), "bfloat16": ("--lora", "8")}
"""Types that stage A trains in, with their options."""
STEPS, CPU_STEPS = 20, 2
"""Steps of stage A on a GPU, and with --cpu, where bfloat16 is slow."""


@dataclass(frozen=True)
class Check:
    """A command, and a function that checks what it has written and returns a comment.

    `before` runs first; it is not measured. With a reason to `skip`, nothing runs.
    """

    stage: str
    name: str
    command: Sequence[str | Path]
    result: Callable[[], str] = str
    before: Callable[[], object] = str
    environment: dict[str, str] | None = None
    skip: str = ""


def vlmgym(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "vlmgym", "train", *map(str, args)]


def train_here(*args: str | Path) -> None:
    """Run `vlmgym train` in this process, without its output."""
    with redirect_stdout(io.StringIO()):
        main_command(["train", *map(str, args)])


def curve(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]


def local(folder: Path, device: str) -> Iterator[Check]:
    """Stage A: train a tiny model; in float32, the first step must equal that of a CPU. On a CPU, it trains two."""
    cpu = device == "cpu"
    model, steps = make_move_model(folder / "moves"), CPU_STEPS if cpu else STEPS
    for dtype, algorithm in (("float32", "grpo"), ("bfloat16", "ppo")) if cpu else product(DTYPES, ("grpo", "ppo")):
        run, reference = (folder / f"{dtype}-{algorithm}-{name}" for name in ("run", "reference"))
        options: list[str | Path] = ["--preset", QUICK, "--model", model, "--size", "96", "--batch-size", "24"]
        options += ["--algorithm", algorithm, "--dtype", dtype, *DTYPES[dtype]]
        options += ["--evaluation.states", "0", "--evaluation.episodes", "0"]
        first = partial(train_here, *options, "--device", "cpu", "--steps", "1", "--output-dir", reference)

        def result(run: Path = run, reference: Path = reference, exact: bool = dtype == "float32") -> str:
            rows, (expected,) = curve(run), curve(reference)
            assert len(rows) == steps
            assert all(math.isfinite(value) for row in rows for value in row.values())
            names = ("reward", "loss", "entropy", "grad_norm") if exact else ("entropy",)
            errors = {name: abs(rows[0][name] - expected[name]) / max(abs(expected[name]), 1e-6) for name in names}
            assert max(errors.values()) < (1e-2 if exact else 5e-2), errors
            return f"differs from a CPU by {max(errors.values()):.0e} in the first step"

        command = vlmgym(*options, "--device", device, "--steps", str(steps), "--output-dir", run)
        yield Check("A", f"{algorithm}, {dtype}", command, result, first)


def write_model(name: str, folder: Path, device: str) -> None:
    """Write a model of the size of one on the Hub, with random weights and a tiny tokenizer."""
    kind, vision, (width, layers, heads, pairs, feed_forward) = MODELS[name]
    make_model(kind, folder, size=TinySize(image_tokens=4096, tied=kind == "qwen3_vl"))
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    text |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": 128}
    text |= {"num_key_value_heads": pairs, "intermediate_size": feed_forward, "vocab_size": VOCABULARY}
    rope = text["rope_scaling"]
    rope["mrope_section"] = [4 * size for size in rope["mrope_section"]]  # for heads of 128 instead of 32
    config["vision_config"] |= {**vision, "out_hidden_size": width}
    (folder / "config.json").write_text(json.dumps(config))
    config = AutoConfig.from_pretrained(folder)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def presets(folder: Path, device: str) -> Iterator[Check]:
    """Stage B: two steps of each preset. Random models never end their responses, which makes these the longest."""
    for name, memory in [("tiny", 24), ("tiny", 80)] if device == "cpu" else PRESETS:
        model, run = folder / name, folder / f"{name}-{memory}"
        options: list[str | Path] = ["--preset", f"1x{memory}gb", "--model", model, "--device", device, "--steps", "2"]
        options += ["--evaluation.states", "0", "--evaluation.episodes", "0", "--output-dir", run]
        if name == "tiny":
            options += ["--size", "64", "--batch-size", "8", "--rollout.max-tokens", "8"]
        code = f"from tests.gpu_smoke import *; write_model({name!r}, Path({str(model)!r}), {device!r})"
        before = partial(execute, [sys.executable, "-c", code])  # in a process, which frees its memory

        def result(run: Path = run) -> str:
            return f"{curve(run)[1]['seconds']:.1f} s a step"

        small = device != "cpu" and torch.cuda.get_device_properties(0).total_memory < 0.9e9 * memory
        skip = f"the preset is for GPUs with {memory} GB" if small else ""
        yield Check("B", f"{name}, preset 1x{memory}gb", vlmgym(*options), result, before, skip=skip)


def with_trl(folder: Path, device: str) -> Iterator[Check]:
    """Stage C: three steps of TRL on single moves and on episodes of three turns."""
    model = make_checkpoint(folder / "trl")
    processor = AutoProcessor.from_pretrained(model)
    processor.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3_vl.jinja").read_text()
    processor.save_pretrained(model)
    options = ["--model", str(model), "--size", "64", "--rows", "8", "--steps", "3", "--batch", "4", "--group", "4"]
    for turns in ("1", "3"):
        run = folder / f"trl-{turns}"
        more = ["--turns", turns, "--response-tokens", "8", "--output-dir", str(run)]

        def result(run: Path = run) -> str:
            assert (run / "model.safetensors").exists()
            return ""

        yield Check("C", f"TRL, {turns} turn(s)", [sys.executable, EXAMPLE, *options, *more], result)


def with_easyr1(folder: Path, device: str) -> Iterator[Check]:
    """Stages D and E, in the environment of EasyR1 with the packages for GPUs."""
    modules, cpu = ("verl", "vllm", "liger_kernel", "pytest"), ["--cpu"] if device == "cpu" else []
    code = f"from importlib.util import find_spec; print(*(m for m in {modules} if find_spec(m) is None))"
    missing = f"{EASYR1}: run bash setup.sh --easyr1 --dev"
    if EASYR1.exists():
        missing = execute([EASYR1, "-c", code]).strip()
    gpus, skip = torch.cuda.device_count(), f"there is no {missing}" if missing else ""
    worker: list[str | Path] = [EASYR1, "-m", "tests.easyr1_gpu.worker", folder / "worker", *cpu]
    yield Check("D", "EasyR1's worker", worker, skip=skip)
    if not skip and not cpu and gpus < 4:
        skip = f"it needs 4 GPUs, and there are {gpus}"
    environment = {} if cpu else {"VLMGYM_TEST_GPUS": "4"}
    pytest = ["-m", "pytest", "-W", "default", "tests/easyr1_gpu", "--basetemp"]
    tests: list[str | Path] = [EASYR1, *pytest, folder / "easyr1"]
    yield Check("E", "EasyR1 with vLLM", tests, environment=environment, skip=skip)


STAGES = {"A": local, "B": presets, "C": with_trl, "D": with_easyr1, "E": with_easyr1}


def execute(command: Sequence[str | Path]) -> str:
    """Run a command; return its output, or raise `AssertionError` with the end of its errors."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def memory(process: int, cpu: bool) -> float:
    """Return the memory in use, in GiB: of a process and its children, or the most of any GPU."""
    if not cpu:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return max(map(float, execute(query).split())) / 1024
    total = 0
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process)
        for each in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
    return total / 2**30


def run(check: Check, log: Path, cpu: bool) -> bool:
    """Run a check and print its result; return False if it failed."""
    start, peak, comment, status = time.monotonic(), 0.0, check.skip, "SKIP"
    if not check.skip:
        try:
            check.before()
            start, used = time.monotonic(), 0.0 if cpu else memory(0, cpu)
            with log.open("wb") as output:
                environment = {**os.environ, **(check.environment or {})}
                command = [*map(str, check.command)]
                process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
                while process.poll() is None:
                    peak = max(peak, memory(process.pid, cpu) - used)
                    time.sleep(0.2)
            assert process.returncode == 0, f"exit code {process.returncode}"
            status, comment = "PASS", check.result()
        except (AssertionError, OSError, LookupError, ValueError, SystemExit) as error:
            status, comment = "FAIL", f"{error}; see {log}"
    seconds = time.monotonic() - start
    print(f"{status}  {check.stage}  {check.name:28} {seconds:6.0f} s {peak:6.1f} GiB  {comment}", flush=True)
    return status != "FAIL"


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpu_smoke.sh", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="run all stages on the CPU, with tiny models")
    parser.add_argument("--stages", nargs="+", choices=[*STAGES], default=[*STAGES])
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        parser.error("torch finds no CUDA GPU: use --cpu")
    folder, passed = Path(tempfile.mkdtemp(prefix="vlmgym-gpu-")), list[bool]()
    for stage in dict.fromkeys(STAGES[stage] for stage in options.stages):
        for check in stage(folder, "cpu" if options.cpu else "cuda"):
            if check.stage in options.stages:
                passed.append(run(check, folder / f"{check.stage}-{len(passed)}.log", options.cpu))
    if all(passed):
        shutil.rmtree(folder)
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
