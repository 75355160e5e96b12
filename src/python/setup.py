"""setup.py - builds libdtrain with CMake and puts it beside the package's modules.

The C sources are the tree around this folder, or `native/` in a source distribution, which gets a
copy of them. CMAKE_ARGS in the environment is passed on to CMake, as in
CMAKE_ARGS=-DDTRAIN_MPI=OFF pip install .
"""
import os
import re
import shlex
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
# What the library is built of.
NATIVE = ["CMakeLists.txt", "LICENSE", "cuda", "include", "src"]


def native_root():
    """The folder of the project's CMakeLists.txt."""
    for folder in (os.path.join(HERE, "native"), os.path.dirname(os.path.dirname(HERE))):
        if os.path.exists(os.path.join(folder, "include/dtrain/dtrain.h")):
            return folder
    raise SystemExit("setup.py: the C sources of libdtrain are not here")


def version():
    with open(os.path.join(native_root(), "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(dtrain VERSION (\S+)", file.read())[1]


class BuildWithLibrary(build_py):
    """Also builds the library, and copies it into the package."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # DTRAIN_LIBRARY then names one
        build = os.path.join(self.get_finalized_command("build").build_temp, "libdtrain")
        subprocess.run(["cmake", "-S", native_root(), "-B", build, "-DDTRAIN_TESTS=OFF",
                        "-DDTRAIN_EXAMPLES=OFF"] + shlex.split(os.environ.get("CMAKE_ARGS", "")),
                       check=True)
        subprocess.run(["cmake", "--build", build, "--target", "dtrain_libraries", "--parallel",
                        str(os.cpu_count())], check=True)
        for name in ("libdtrain.so", "libdtrain_nccl.so"):  # the second where nvcc was found
            if os.path.exists(os.path.join(build, "lib", name)):
                shutil.copyfile(os.path.join(build, "lib", name),
                                os.path.join(self.build_lib, "dtrain", name))


class SourceWithLibrary(sdist):
    """Puts the C sources into the archive."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in NATIVE:
            source = os.path.join(native_root(), name)
            target = os.path.join(base_dir, "native", name)
            if os.path.isdir(source):
                shutil.copytree(source, target,
                                ignore=shutil.ignore_patterns("python", "__pycache__", "build"))
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(source, target)


class OfThisPlatform(Distribution):
    """The library in it is not for every platform."""

    def has_ext_modules(self):
        return True


class PlainWheel(bdist_wheel):
    """A wheel for every Python of this platform: there is no extension module in it."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(version=version(), distclass=OfThisPlatform, packages=["dtrain", "dtrain.torch", "dtrain.compat"],
      package_data={"dtrain": ["py.typed"], "dtrain.compat": ["horovod/**/*.py"]},
      cmdclass={"build_py": BuildWithLibrary, "sdist": SourceWithLibrary,
                "bdist_wheel": PlainWheel})
