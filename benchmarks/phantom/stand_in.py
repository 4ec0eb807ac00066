"""Builds a stand-in for a GPU, and runs programs with it. There is no GPU: its kernels compute nothing.

A folder gets an environment with the CUDA build of torch (5 GB) and three libraries that are loaded before
CUDA's own. Needs gcc, nm and a package index that has torch's CUDA build.

    python benchmarks/phantom/stand_in.py FOLDER [PROGRAM [ARGUMENTS ...]]    # builds what is missing
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE, PROJECT = Path(__file__).parent, Path(__file__).parents[2]
TORCH = "torch==2.13.0"
# Libraries of torch that take symbols from CUDA's, and the names of these symbols.
_TAKERS = (
    "torch_cuda",
    "c10_cuda",
    "torch_python",
    "torch_cuda_linalg",
    "caffe2_nvrtc",
    "torch_cpu",
    "torch_nvshmem",
)
_TAKEN = re.compile(r"(__cuda|cuda[A-Z]|cublas|cu(?!File)[A-Z])\w*")
_COMPILER = ("gcc", "-w", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


def python_of(folder: Path) -> Path:
    """Return the environment's interpreter; makes the environment if it is not there."""
    python = folder / "environment" / "bin" / "python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", TORCH], check=True)
        pins = (PROJECT / "constraints.txt").read_text().splitlines()
        mine = folder / "constraints.txt"
        mine.write_text("\n".join(pin for pin in pins if not re.match(r"(torch|setuptools|ray)\b", pin)))
        install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(mine)]
        subprocess.run([*install, "--editable", f"{PROJECT}[models]"], check=True)
        (folder / "installed").touch()
    return python


def libraries_of(folder: Path) -> list[Path]:
    """Return the libraries to load first; builds them if they are not there."""
    made = [folder / name for name in ("libcuda.so.1", "libnvrtc.so.13", "libnvidia-ml.so.1")]
    if not all(library.exists() for library in made):
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(subprocess.check_output([python_of(folder), "-c", where], text=True).strip())
        wanted = {
            name for taker in _TAKERS for name in _symbols(site / f"torch/lib/lib{taker}.so", "undefined")
        }
        runtime, compiler, management = made
        _compile(site, runtime, ["runtime.c", "libraries.c"], {n for n in wanted if _TAKEN.fullmatch(n)})
        of_compiler = _symbols(site / "nvidia/cu13/lib/libnvrtc.so.13", "defined")
        _compile(
            site, compiler, ["compiler.c"], {n for n in of_compiler if n.startswith(("nvrtc", "__nvrtc"))}
        )
        _compile(site, management, ["management.c"], set())
    return made


def _symbols(library: Path, kind: str) -> list[str]:
    listed = subprocess.check_output(["nm", "-D", f"--{kind}-only", library], text=True)
    return [line.split()[-1].partition("@")[0] for line in listed.splitlines()]


def _compile(site: Path, library: Path, sources: list[str], wanted: set[str]) -> None:
    """Compile sources, with a function that only returns success for each other symbol that is wanted."""
    folders = ("nvidia/cu13/include", "nvidia/cudnn/include", "triton/backends/nvidia/include")
    command = [*_COMPILER, *(f"-I{site / folder}" for folder in folders)]
    command += [*(str(HERE / name) for name in sources), "-o", str(library)]
    command += [f"-Wl,-soname,{library.name}", "-ldl"]
    subprocess.run(command, check=True)
    rest = library.with_name(f"rest_of_{library.name}.c")
    missing = sorted(wanted - set(_symbols(library, "defined")))
    rest.write_text(
        "".join(
            f'__attribute__((visibility("default"))) long {name}(void) {{ return 0; }}\n' for name in missing
        )
    )
    subprocess.run([*command, rest], check=True)


def environment(folder: Path, gpu: str = "H100", **more: str) -> dict[str, str]:
    """Return the environment variables of a program that is to find this GPU."""
    preloaded = " ".join(str(library) for library in libraries_of(folder))
    # Triton, by which torch multiplies columns by rows, finds no GPU; without it cuBLAS does that.
    without_triton = {"TORCH_DISABLE_NATIVE_JIT": "1"}
    found = {"LD_PRELOAD": preloaded, "PHANTOM_GPU": gpu, "PYTHONPATH": str(PROJECT)}
    return os.environ | found | without_triton | more


def main() -> None:
    """Build, and become the program, if one is given."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python, env = python_of(folder), environment(folder, os.environ.get("PHANTOM_GPU", "H100"))
    if sys.argv[2:]:
        os.execve(python, [str(python), *sys.argv[2:]], env)


if __name__ == "__main__":
    main()
