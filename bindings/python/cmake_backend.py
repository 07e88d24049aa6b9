# SPDX-License-Identifier: Apache-2.0
"""PEP 517 backend: builds the project with CMake and packs the Python package, libfp8 and its modules into one abi3 wheel.

Environment: CMAKE_ARGS (more arguments for cmake), CMAKE_BUILD_PARALLEL_LEVEL (jobs; all cores without it), FP8_WHEEL_JAX=0
(leave fp8.jax out), FP8_WHEEL_BUILD (build folder), FP8_WHEEL_PACK (a build folder, whose library and binding are packed as they are).
"""
import base64
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINDINGS = ("_capi.abi3.so", "jax/libfp8_jax.so")  # what the build puts into the package
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def get_requires_for_build_wheel(config_settings=None):
    if os.environ.get("FP8_WHEEL_PACK"):
        return []
    wanted = [] if shutil.which("cmake") else ["cmake>=3.22"]
    return wanted + ["swig>=4.2,<5"] + ([] if os.environ.get("FP8_WHEEL_JAX") == "0" else ["jax>=0.10.2"])


def build(folder: pathlib.Path) -> pathlib.Path:
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DFP8_TESTS=OFF", "-DFP8_EXAMPLES=OFF", "-DFP8_MPI=OFF",
               "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_SHARED_LINKER_FLAGS=-s", "-DCMAKE_MODULE_LINKER_FLAGS=-s",
               f"-DPython_EXECUTABLE={sys.executable}", *shlex.split(os.environ.get("CMAKE_ARGS", ""))]
    environment = {**os.environ, "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])}
    # What an earlier build made is linked again, or, if it is not part of this one, not packed.
    package = folder / "python" / "fp8"
    if (folder / "CMakeCache.txt").exists():  # else what lies there is not of a build
        shutil.rmtree(folder / "lib", ignore_errors=True)
    for name in BINDINGS:
        (package / name).unlink(missing_ok=True)
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(folder), *options], check=True, env=environment)
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    subprocess.run(["cmake", "--build", str(folder)], check=True, env=environment)
    return built(folder)


def built(folder: pathlib.Path) -> pathlib.Path:
    """the package in a build folder, which has all that a wheel wants of it"""
    package = folder / "python" / "fp8"
    for name in BINDINGS[:1] if os.environ.get("FP8_WHEEL_JAX") == "0" else BINDINGS:
        if not (package / name).exists():
            raise SystemExit(f"{package / name} was not built: cmake's lines 'fp8: bindings: python ... SKIPPED' say why" +
                             ("; FP8_WHEEL_JAX=0 leaves fp8.jax out" if name != BINDINGS[0] else ""))
    return package


def contents(folder: pathlib.Path, package: pathlib.Path):
    """(name in the wheel, file): the package, and the library with its modules in fp8/lib

    Without the MPI communicator: Python has no call for it, and it is bound to one MPI.
    """
    skipped = {"__pycache__"} | ({"jax"} if os.environ.get("FP8_WHEEL_JAX") == "0" else set())
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        if path.is_file() and not skipped.intersection(inside.parts):
            yield f"fp8/{inside.as_posix()}", path
    for path in sorted((folder / "lib").rglob("libfp8*.so*")):
        if not path.is_symlink() and path.is_file() and not path.name.startswith("libfp8_mpi"):
            name = "libfp8.so.0" if path.name.startswith("libfp8.so.") else path.name
            yield f"fp8/lib/{name}", path


def metadata() -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {PROJECT['name']}", f"Version: {PROJECT['version']}", f"Summary: {PROJECT['description']}",
             f"License: {PROJECT['license']['text']}", f"Requires-Python: {PROJECT['requires-python']}"]
    lines += [f"Requires-Dist: {d}" for d in PROJECT["dependencies"]]
    for extra, wanted in PROJECT["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *[f'Requires-Dist: {d}; extra == "{extra}"' for d in wanted]]
    return "\n".join(lines) + "\n"


def tag() -> str:
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def dist_info() -> tuple[str, dict[str, str]]:
    """the name of the .dist-info folder, and its files but RECORD"""
    return f"{PROJECT['name']}-{PROJECT['version']}.dist-info", {
        "METADATA": metadata(), "WHEEL": f"Wheel-Version: 1.0\nGenerator: cmake_backend\nRoot-Is-Purelib: false\nTag: {tag()}\n"}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """the metadata alone: nothing is built for it"""
    info, files = dist_info()
    folder = pathlib.Path(metadata_directory, info)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if os.environ.get("FP8_WHEEL_PACK"):
        folder = pathlib.Path(os.environ["FP8_WHEEL_PACK"])
        if not folder.is_absolute():  # pip has changed the folder
            raise SystemExit(f"FP8_WHEEL_PACK={folder}: an absolute path is needed")
        return pack(folder, built(folder), wheel_directory)
    folder = pathlib.Path(os.environ.get("FP8_WHEEL_BUILD", HERE / "build"))
    return pack(folder, build(folder), wheel_directory)


def pack(folder: pathlib.Path, package: pathlib.Path, wheel_directory) -> str:
    """the wheel of what lies in a build folder"""
    info, texts = dist_info()
    files = [(name, path.read_bytes()) for name, path in contents(folder, package)]
    files += [(f"{info}/{name}", text.encode()) for name, text in texts.items()]
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b'=').decode()},{len(d)}\n" for n, d in files)
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode()))
    name = f"{PROJECT['name']}-{PROJECT['version']}-{tag()}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files:
            entry = zipfile.ZipInfo(path)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("no sdist: build the wheel from the repository")
