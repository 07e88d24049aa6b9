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


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def golden():
    folder = pathlib.Path(os.environ["FP8_GOLDEN"])
    return folder, json.loads((folder / "manifest.json").read_text())
