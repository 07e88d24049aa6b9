# SPDX-License-Identifier: Apache-2.0
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import fp8  # noqa: E402

RECIPES = ["tensor", "row", "block", "mx", "mx_w2d"]


@pytest.fixture(scope="session")
def context():
    return fp8.Context("cpu", threads=2)


@pytest.fixture
def rng():
    return np.random.default_rng(11)
