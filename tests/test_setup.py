"""setup.sh, mostly with stub interpreters that download nothing; the last test uses real Python and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ["bash", "cat", "cksum", "cp", "dirname", "grep", "ln", "mkdir", "mktemp", "mv", "rm", "sed", "tail", "tee"]
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON = """\
#!{bash}
# Behaves like Python 3.{minor} as far as setup.sh needs, and records calls of venv and pip.
case "$1 ${{2:-}}" in
    "-c import sys; "*)
        oldest=${{2#*(3, }} newest=${{2##*(3, }}
        [ "${{oldest%%)*}}" -le {minor} ] && [ {minor} -le "${{newest%%)*}}" ] ;;
    "-c import ensurepip, venv") {can_create_venv} ;;
    "-c "*purelib*) echo "${{0%/*}}" ;;
    "-c import torchvision") [ -e "${{0%/*}}/torchvision_beside_cpu_torch.pth" ] || ! [ -e "{root}/no-torchvision" ] ;;
    "-c import vlmgym.cli.eval") ! [ -e "{root}/broken" ] ;;
    "-c import importlib"*)
        for module in "${{@:3}}"; do
            echo "import $module"
            [ "$module" != "$(cat "{root}/no-import")" ] || {{ echo "ImportError: NumPy 2.0 needed"; exit 1; }}
        done ;;
    "-m venv") echo "venv by 3.{minor}" >>"{root}/calls"; mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip")
        [ "$3" != --version ] || exit 0
        echo "pip ${{@:4}}" >>"{root}/calls"
        cat "{root}/pip-output"
        ! grep -q ERROR "{root}/pip-output" || exit 1
        case "$*" in *easyr1.txt) ! [ -e "{root}/no-github" ] ;; esac ;;
    "--version ") echo "Python 3.{minor}.0" ;;
esac 2>/dev/null
"""
UV = """\
#!{bash}
case "$1" in
    venv) echo "uv venv $4" >>"{root}/calls"; mkdir -p "$5/bin" && cp "{root}/uv-python" "$5/bin/python" ;;
    pip) echo "uv ${{@:5}}" >>"{root}/calls" ;;
esac
"""


class Machine:
    """A clone in a folder with a space in its name, and a PATH with only stubs and the tools that setup.sh needs."""

    def __init__(self, root: Path) -> None:
        self.root, self.clone, self.bin = root, root / "a folder" / "vlmgym", root / "bin"
        self.venv, self.training = self.clone / ".venv", self.clone / ".venv-train"
        self.bin.mkdir()
        for folder in ("training/serving", "training/requirements"):
            shutil.copytree(ROOT / folder, self.clone / folder)
        for name in ("setup.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, self.clone)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.program("uname", 'echo "Linux x86_64"')

    def python(self, path: Path | str, minor: int, can_create_venv: bool = True) -> Path:
        path = self.bin / path
        path.parent.mkdir(parents=True, exist_ok=True)
        can = str(can_create_venv).lower()
        path.write_text(PYTHON.format(bash=self.bin / "bash", root=self.root, minor=minor, can_create_venv=can))
        path.chmod(0o755)
        return path

    def environment(self, name: str, minor: int = 11) -> Path:
        self.python(self.root / name / "bin" / "python", minor)
        return self.root / name

    def uv(self) -> None:
        """Put a stub uv on the PATH, which creates environments with Python 3.12."""
        self.python(self.root / "uv-python", 12)
        self.program("uv", UV.format(bash=self.bin / "bash", root=self.root))

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(script if script.startswith("#!") else f"#!{self.bin / 'bash'}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def add_dependency(self) -> None:
        with (self.clone / "pyproject.toml").open("a") as file:
            file.write("# another dependency\n")

    def gpu(self, present: bool) -> None:
        """Put a stub nvidia-smi on the PATH that fails unless a GPU is `present`."""
        self.program("nvidia-smi", f"exit {0 if present else 9}")

    def setup(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": str(self.bin), "HOME": str(self.root), **variables}
        return run(shutil.which("bash") or "bash", self.clone / "setup.sh", *options, cwd=self.root, env=variables)

    def calls(self, *options: str, **variables: str) -> list[str]:
        """Run setup.sh and return its calls of venv, pip and uv."""
        record = self.root / "calls"
        record.unlink(missing_ok=True)
        done = self.setup(*options, **variables)
        assert done.returncode == 0, done
        return record.read_text().splitlines() if record.exists() else []


def run(*command: str | Path, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def assert_fails(done: subprocess.CompletedProcess[str], words: str, code: int = 1) -> None:
    """Check the exit code, and that standard error is one sentence that contains `words`."""
    assert done.returncode == code, done
    assert done.stderr.startswith("setup.sh: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith((".\n", ").\n"))
    assert words in done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


PIP = "pip --progress-bar off"
UPDATE = f"{PIP} pip>=21.3"
CORE = f"{PIP} --editable .[tasks]"
DEV = f"{PIP} --editable .[dev]"


def test_help_and_unknown_option(machine: Machine) -> None:
    done = machine.setup("--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--dev", "--serve", "--train", "--integrations", "PYTHON="))
    assert_fails(machine.setup("--training"), "unknown option '--training'", code=2)
    assert not machine.venv.exists()


@pytest.mark.parametrize(
    ("minors", "chosen"),
    [
        ({"python3": 11, "python3.13": 13}, 11),
        ({"python3": 9, "python3.10": 10}, 10),
        ({"python3": 14, "python3.12": 12}, 12),
    ],
)
def test_first_interpreter_that_fits_is_used(machine: Machine, minors: Mapping[str, int], chosen: int) -> None:
    for name, minor in minors.items():
        machine.python(name, minor)
    assert machine.calls() == [f"venv by 3.{chosen}", UPDATE, CORE]


def test_no_suitable_interpreter(machine: Machine) -> None:
    machine.program("python3.13", "exit 127")
    assert_fails(machine.setup(), "Python 3.10 to 3.13 with its module venv")
    machine.python("python3", 9)
    assert_fails(machine.setup(), "found: Python 3.9.0")
    machine.python("python3", 12, can_create_venv=False)
    assert_fails(machine.setup(), "apt install python3-venv")
    assert not machine.venv.exists()


def test_uv_creates_environments_and_installs(machine: Machine) -> None:
    machine.uv()
    assert machine.calls() == ["uv venv >=3.10,<3.14", "uv --editable .[tasks]"]
    assert machine.calls() == []
    named = machine.python("python3.12", 12, can_create_venv=False)
    machine.gpu(True)
    wanted = machine.calls("--train", PYTHON=str(named))
    assert wanted[1] == f"uv venv {named}"
    assert wanted[2] == "uv --editable .[openai,tasks,train] --requirement training/requirements/gpu.txt"


def test_active_conda_environment_is_used_and_linked(machine: Machine) -> None:
    conda = machine.environment("conda envs/vlmgym", 10)
    active = {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "vlmgym"}
    assert machine.calls(**active) == [UPDATE, CORE]
    assert machine.venv.readlink() == conda
    assert machine.calls(**active) == []
    assert machine.calls("--dev") == [UPDATE, DEV], "it is still used when it is not active"


def test_conda_base_and_environments_that_are_gone_are_not_used(machine: Machine) -> None:
    machine.python("python3", 12)
    conda = machine.environment("conda")
    (conda / "condabin").mkdir()
    for active in (
        {"CONDA_PREFIX": str(machine.environment("miniconda")), "CONDA_DEFAULT_ENV": "base"},
        {"CONDA_PREFIX": str(conda)},
        {"VIRTUAL_ENV": str(machine.root / "gone")},
        {"VIRTUAL_ENV": str(machine.venv)},
    ):
        machine.add_dependency()
        assert machine.calls(**active)[-2:] == [UPDATE, CORE]
        assert not machine.venv.is_symlink()
    old = machine.environment("old", 9)
    assert_fails(machine.setup(VIRTUAL_ENV=str(old)), f"{old} has no Python 3.10 to 3.13")


@pytest.mark.parametrize("active", [True, False])
def test_foreign_folder_in_place_of_venv_is_kept(machine: Machine, active: bool) -> None:
    machine.python("python3", 11)
    machine.venv.mkdir()
    (machine.venv / "notes.txt").write_text("precious")
    done = machine.setup(**({"VIRTUAL_ENV": str(machine.environment("active"))} if active else {}))
    assert done.returncode == 0, done
    (kept,) = machine.clone.glob(".venv.old.*/.venv/notes.txt")
    assert kept.read_text() == "precious"
    assert kept.parents[1].name in done.stdout
    assert machine.venv.is_symlink() == active


EASYR1 = f"{PIP} --no-deps --requirement training/requirements/easyr1.txt"


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    ("option", "extras", "lists"),
    [("--serve", "openai,tasks", "serving/vllm-"), ("--train", "openai,tasks,train", "requirements/")],
)
def test_serving_and_training_environments(machine: Machine, option: str, extras: str, lists: str, gpu: bool) -> None:
    machine.python("python3", 12)
    machine.gpu(gpu)
    wanted = [f"{PIP} --editable .[{extras}] --requirement training/{lists}gpu.txt"]
    if not gpu:
        wanted = [
            f"{PIP} --no-deps {CPU_INDEX} --constraint training/{lists}cpu.txt torch torchvision",
            f"{PIP} --no-deps --requirement training/{lists}cpu.txt",
            f"{PIP} --editable .[{extras}] --constraint training/{lists}cpu.txt",
        ]
    if option == "--train":
        wanted += [f"{PIP} --no-deps --requirement training/requirements/dev.txt", EASYR1]
    assert machine.calls("--dev", option) == ["venv by 3.12", UPDATE, DEV, "venv by 3.12", UPDATE, *wanted]
    assert machine.calls(option) == []


@pytest.mark.parametrize("dev", [False, True])
def test_environments_of_integrations(machine: Machine, dev: bool) -> None:
    machine.python("python3", 12)
    calls = machine.calls(*["--dev"] * dev, "--integrations")
    extra = "test" if dev else "tasks"
    assert calls[5] == f"{PIP} --editable .[inspect,openenv,skyrl,{extra}]"
    assert calls[8] == f"{PIP} --editable .[verifiers,{extra}]"
    assert machine.calls("--integrations") == []


def test_serving_without_gpu_needs_linux(machine: Machine) -> None:
    machine.python("python3", 12)
    machine.program("uname", 'echo "Darwin arm64"')
    assert_fails(machine.setup("--serve"), "not Darwin arm64")


def test_training_without_github(machine: Machine) -> None:
    machine.python("python3", 11)
    (machine.root / "no-github").touch()
    machine.gpu(True)
    said = machine.setup("--train").stdout
    assert "EasyR1 could not be installed from GitHub" in said
    assert "bash training/scripts/local_2048.sh" in said
    (machine.root / "no-github").unlink()
    assert machine.calls("--train")[-1] == EASYR1
    assert machine.calls("--train") == []


def test_failing_torchvision_gets_the_shim(machine: Machine) -> None:
    machine.python("python3", 11)
    shim = "torchvision_beside_cpu_torch"
    machine.calls("--train")
    assert not list(machine.training.glob(f"bin/{shim}.*"))
    (machine.root / "no-torchvision").touch()
    machine.add_dependency()
    machine.calls("--train")
    assert (machine.training / "bin" / f"{shim}.pth").read_text() == f"import {shim}\n"
    assert (machine.training / "bin" / f"{shim}.py").exists()


def test_serving_needs_python_3_11(machine: Machine) -> None:
    machine.python("python3", 10)
    assert_fails(machine.setup("--serve"), "needs Python 3.11 to 3.13")
    machine.python("python3.12", 12)
    assert "venv by 3.12" in machine.calls("--serve")


def test_training_on_gpus_needs_python_3_12_at_most(machine: Machine) -> None:
    machine.python("python3", 13)
    assert machine.calls("--train").count("venv by 3.13") == 2
    machine.gpu(True)
    shutil.rmtree(machine.training)
    assert_fails(machine.setup("--train"), "needs Python 3.11 to 3.12")
    machine.python("python3.12", 12)
    assert "venv by 3.12" in machine.calls("--train")
    machine.uv()
    shutil.rmtree(machine.training)
    assert machine.calls("--train")[0] == "uv venv >=3.11,<3.13"


EASYR1_MODULES = (
    "vllm",
    "verl.workers.fsdp_workers",
    "vlmgym.training.easyr1.trainer",
    "vlmgym.training.easyr1.worker",
)


@pytest.mark.parametrize("gpu", [False, True])
def test_all_modules_of_training_are_imported(machine: Machine, gpu: bool) -> None:
    machine.python("python3", 11)
    machine.gpu(gpu)
    done = machine.setup("--train")
    last = [line for line in done.stdout.splitlines() if line][-1]
    assert last == f"Train:          bash training/scripts/{'rl' if gpu else 'local'}_2048.sh"
    imported = {line.partition(" ")[2] for line in (machine.clone / "setup.log").read_text().splitlines()}
    assert {
        "datasets",
        "torch",
        "torchvision",
        "transformers",
        "vlmgym.training.train",
        "verl.utils.dataset",
    } <= imported
    assert imported.issuperset(EASYR1_MODULES) == gpu


def test_failing_import_is_named(machine: Machine) -> None:
    machine.python("python3", 11)
    machine.gpu(True)
    module = EASYR1_MODULES[-1]
    (machine.root / "no-import").write_text(module)
    done = machine.setup("--train")
    assert_fails(done, f"'import {module}' fails in it: ImportError: NumPy 2.0 needed")
    assert done.stdout.count("Done.") == 1, "only the core environment"
    (machine.root / "no-import").unlink()
    assert machine.calls("--train"), "the installation is repeated"


def test_second_run_installs_only_what_is_missing(machine: Machine) -> None:
    machine.python("python3", 11)
    assert machine.calls() == ["venv by 3.11", UPDATE, CORE]
    assert machine.calls() == []
    assert machine.calls("--dev") == [UPDATE, DEV]
    assert machine.calls() == []
    machine.add_dependency()
    assert machine.calls("--dev") == [UPDATE, DEV]
    (machine.root / "broken").touch()
    assert machine.calls("--dev") == [UPDATE, DEV], "a package was removed"


@pytest.mark.parametrize(
    ("pip_says", "words"),
    [
        ("ERROR: No matching distribution found for numpy>=1.26", "check the network"),
        ("ERROR: OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Failed building wheel for pygame\n", "Failed building wheel for pygame"),
    ],
)
def test_failed_installation_is_reported_in_one_sentence_and_repeated(
    machine: Machine, pip_says: str, words: str
) -> None:
    machine.python("python3", 11)
    (machine.root / "pip-output").write_text(pip_says + "\n")
    done = machine.setup()
    assert_fails(done, words)
    assert pip_says.strip() in done.stdout
    assert str(machine.clone / "setup.log") in done.stderr
    (machine.root / "pip-output").unlink()
    assert machine.calls() == [UPDATE, CORE]


@pytest.mark.slow
def test_real_installation_into_an_active_environment(machine: Machine) -> None:
    """Emulate a conda environment that already has the dependencies, so that hardly anything is downloaded."""
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, machine.clone)
    shutil.copytree(ROOT / "vlmgym", machine.clone / "vlmgym", ignore=shutil.ignore_patterns("__pycache__"))
    conda = machine.root / "conda env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(conda)], check=True, timeout=120)
    (packages,) = conda.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    outer = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables = {**outer, "PYTHON": sys.executable, "CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "vlmgym"}
    done = machine.setup(**variables)
    assert done.returncode == 0, (done, (machine.clone / "setup.log").read_text())
    script = machine.clone.parent / "beside_the_clone.py"  # the clone's folder could be mistaken for vlmgym
    script.write_text("import vlmgym; print(vlmgym.make_game, vlmgym.__file__)")
    for folder in (machine.root, script.parent, machine.clone):
        shown = run(machine.venv / "bin" / "python", script, cwd=folder, env=variables)
        assert shown.stdout.endswith(f" {machine.clone / 'vlmgym' / '__init__.py'}\n"), shown
    for folder in (machine.clone, machine.clone / "vlmgym" / "test"):
        evaluation = machine.clone / "vlmgym" / "test" / "eval_2048.py"
        shown = run(
            machine.venv / "bin" / "python", evaluation.relative_to(folder), "--help", cwd=folder, env=variables
        )
        assert "--episodes" in shown.stdout, shown
    assert "up to date" in machine.setup(**variables).stdout
