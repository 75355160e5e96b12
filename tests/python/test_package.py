"""test_package.py PACKAGE [LAUNCHER] - the package as pip installs it: a source distribution is
made, a wheel is built of it, and a fresh environment imports it and its bundled library.

Debian's pip, setuptools and wheel are used as they are, without a network. LAUNCHER is CMake's
compiler launcher, as ccache."""
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PROGRAM = """
import os
import dtrain, numpy as np
from dtrain import _library
folder = os.path.dirname(os.path.abspath(dtrain.__file__))
assert _library.path == os.path.join(folder, "libdtrain.so"), _library.path
dtrain.init()
print(dtrain.allreduce(np.arange(3, dtype=np.float32), op=dtrain.Sum), dtrain.version())
"""


def missing():
    if shutil.which("cmake") is None:
        return "CMake"
    for module in ("pip", "setuptools", "wheel", "venv", "ensurepip"):
        if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            return module
    return None


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build_sdist(package, work):
    """Archive of the package: the tree is copied first, since setuptools writes into it."""
    root = os.path.join(work, "tree")
    source = os.path.dirname(os.path.dirname(package))
    for name in ("cuda", "include", "src"):
        shutil.copytree(os.path.join(source, name), os.path.join(root, name),
                        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    for name in ("CMakeLists.txt", "LICENSE"):
        shutil.copyfile(os.path.join(source, name), os.path.join(root, name))
    run(sys.executable, "setup.py", "-q", "sdist", "-d", work, cwd=os.path.join(root, "src/python"))
    shutil.rmtree(root)
    return next(os.path.join(work, name) for name in os.listdir(work) if name.endswith(".tar.gz"))


def check_archive(path):
    names = tarfile.open(path).getnames()
    for wanted in ("native/src/libdtrain.map", "native/include/dtrain/dtrain.h", "native/LICENSE",
                   "native/CMakeLists.txt", "native/cuda/CMakeLists.txt", "dtrain/_abi.py"):
        assert any(name.endswith(wanted) for name in names), f"{wanted} is not in {path}"
    assert not any("__pycache__" in name for name in names)


def main():
    package, launcher = sys.argv[1], (sys.argv[2:] + [""])[0]
    lacking = missing()
    if lacking:
        print(f"skipped: {lacking} is not installed (Debian: cmake, python3-pip, "
              "python3-setuptools, python3-wheel, python3-venv)")
        return 77
    work = tempfile.mkdtemp(prefix="dtrain-package-")
    try:
        archive = build_sdist(package, work)
        check_archive(archive)
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("PYTHONPATH", "DTRAIN_LIBRARY")}
        environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        if launcher:
            environment["CMAKE_ARGS"] = f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}"
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
            "--no-index", "-w", work, archive, env=environment, cwd=work)
        wheel = next(os.path.join(work, name) for name in os.listdir(work)
                     if name.endswith(".whl"))
        assert "-py3-none-linux" in wheel, wheel
        names = zipfile.ZipFile(wheel).namelist()
        libraries = ["libdtrain.so"]
        if os.environ.get("HAS_NCCL") == "1":
            libraries.append("libdtrain_nccl.so")
        for wanted in (*libraries, "py.typed", "torch/operations.py",
                       "compat/horovod/torch/__init__.py", "compat/horovod/runner/util/threads.py"):
            assert f"dtrain/{wanted}" in names, f"{wanted} is not in {names}"
        venv = os.path.join(work, "venv")
        run(sys.executable, "-m", "venv", "--system-site-packages", venv)
        python = os.path.join(venv, "bin/python")
        run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, env=environment)
        print(run(python, "-c", PROGRAM, env=environment, cwd=work).strip())
        return 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
