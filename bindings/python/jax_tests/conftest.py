# SPDX-License-Identifier: Apache-2.0
"""The tests run on the CPU, as 4 devices; with FP8_TEST_BACKEND=cuda on one GPU."""
import os

CUDA = os.environ.get("FP8_TEST_BACKEND") == "cuda"
os.environ.setdefault("XLA_FLAGS", "" if CUDA else "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cuda" if CUDA else "cpu")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import fp8  # noqa: E402

RECIPES = ["tensor", "row", "block", "mx", "mx_w2d"]


@pytest.fixture(scope="session")
def context():
    """of the device that JAX runs on: what its results must equal"""
    return fp8.Context("cuda") if CUDA else fp8.Context("cpu", threads=2)


@pytest.fixture
def put(context):
    """numpy -> an array that the context's calls take"""
    return lambda a: fp8.DeviceArray(context, a.shape, a.dtype).copy_from(a) if context.is_cuda else a


@pytest.fixture
def rng():
    return np.random.default_rng(11)
