# SPDX-License-Identifier: Apache-2.0
"""Packs a build folder into a wheel by pip, installs it into an empty place, and uses it there: nothing of the build is loaded.

usage: wheel.py BUILD_FOLDER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import cmake_backend  # noqa: E402

USE = """
import sys
import numpy as np
import fp8
place = sys.argv[1]
assert fp8.__file__.startswith(place), fp8.__file__
context = fp8.Context("cpu", threads=1)
assert fp8.quantize(np.ones((32, 64), np.float32), "mx", context=context).dequantize().min() == 1
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libfp8" in line.rpartition("/")[2]}
assert loaded and all(name.startswith(place) for name in loaded), loaded
print(fp8.capi.fp8_build_info(), "from", sorted(loaded))
"""


def refuses_what_is_stale(folder: pathlib.Path):
    """a binding of an earlier build, which this one leaves out, is not packed; what is not of a build is not removed"""
    stale, empty, other = folder / "build" / "python" / "fp8" / "_capi.abi3.so", folder / "bin", folder / "build" / "lib" / "other"
    for file in stale, other:
        file.parent.mkdir(parents=True)
        file.write_text("of an earlier build")
    empty.mkdir()
    (empty / "cmake").write_text("#!/bin/sh\n")  # builds nothing
    (empty / "cmake").chmod(0o755)
    before = dict(os.environ)
    os.environ.update(PATH=str(empty), FP8_WHEEL_BUILD=str(folder / "build"))
    try:
        cmake_backend.build_wheel(folder)
    except SystemExit as error:
        assert "_capi.abi3.so was not built" in str(error), error
        assert other.exists(), "files of a folder that is not of a build were removed"
    else:
        raise AssertionError("a stale binding was packed")
    finally:
        os.environ.clear()
        os.environ.update(before)


def leaves_jax_out(build: pathlib.Path):
    """FP8_WHEEL_JAX=0: nothing of fp8.jax is packed, also where a build folder has it"""
    before = os.environ.get("FP8_WHEEL_JAX")
    os.environ["FP8_WHEEL_JAX"] = "0"
    names = [name for name, _ in cmake_backend.contents(build, cmake_backend.built(build))]
    assert "fp8/recipe.py" in names and not [n for n in names if n.startswith("fp8/jax")], names
    del os.environ["FP8_WHEEL_JAX"]
    if before:
        os.environ["FP8_WHEEL_JAX"] = before


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not (build / "python" / "fp8" / "jax" / "libfp8_jax.so").exists():
        os.environ["FP8_WHEEL_JAX"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        refuses_what_is_stale(pathlib.Path(folder, "stale"))
        leaves_jax_out(build)
        # FP8_WHEEL_PACK: nothing is fetched, configured or built
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "-w", folder, str(HERE)], check=True,
                       env={**os.environ, "FP8_WHEEL_PACK": str(build)})
        name = next(pathlib.Path(folder).glob("fp8-*.whl")).name
        assert "-cp311-abi3-" in name, name
        info = cmake_backend.prepare_metadata_for_build_wheel(folder)
        with zipfile.ZipFile(os.path.join(folder, name)) as wheel:
            assert "fp8/lib/libfp8.so.0" in wheel.namelist() and not [n for n in wheel.namelist() if "libfp8_mpi" in n], wheel.namelist()
            for text in ("METADATA", "WHEEL"):
                assert wheel.read(f"{info}/{text}") == pathlib.Path(folder, info, text).read_bytes(), text
        place = os.path.join(folder, "site")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", place, os.path.join(folder, name)],
                       check=True)
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "FP8_MODULE_PATH")}
        subprocess.run([sys.executable, "-c", USE, place], check=True, cwd=folder, env={**environment, "PYTHONPATH": place})


if __name__ == "__main__":
    main()
