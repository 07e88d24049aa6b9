# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib

import numpy as np
import pytest

import fp8

RECIPES = ["tensor", "row", "block", "mx", "mx_w2d"]


@pytest.fixture(scope="session")
def context():
    return fp8.Context("cpu", threads=2)


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def anywhere(request):
    """a context on each kind of device here"""
    return fp8.Context("cpu", threads=2) if request.param == "cpu" else request.getfixturevalue("cuda")


@pytest.fixture(scope="session")
def cuda():
    """a CUDA context; without one the test is skipped, unless FP8_TEST_BACKEND=cuda says that there must be one"""
    try:
        return fp8.Context("cuda")
    except fp8.Error as e:
        if os.environ.get("FP8_TEST_BACKEND") == "cuda":
            raise
        pytest.skip(str(e).split("(")[0])


@pytest.fixture(scope="session")
def put(anywhere):
    """numpy -> an array that calls of `anywhere` take"""
    return lambda a: fp8.DeviceArray(anywhere, a.shape, a.dtype).copy_from(a) if anywhere.is_cuda else a


def host(array):
    """numpy of a result"""
    return array.numpy() if isinstance(array, fp8.DeviceArray) else np.asarray(array)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def golden():
    folder = pathlib.Path(os.environ["FP8_GOLDEN"])
    return folder, json.loads((folder / "manifest.json").read_text())
