#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what scripts/test.sh (all) or scripts/demo.sh (demo) needs: Debian packages by apt-get, Python packages into
# .dev/venv. Installs only what is missing, so a second run takes a moment and needs no network; after demo, all adds
# the rest.
# usage: scripts/setup.sh [all|demo]
# Switches: FP8_SETUP_JULIA=0 leaves Julia out; FP8_SETUP_PYTHON=0 leaves the Python packages out.
# Used if present, never installed here: the CUDA toolkit (nvcc), Rust (cargo).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup_lib.sh

scope=${1:-all}
case "$scope" in
  all | demo) ;;
  *) sed -n '3,7s/^# //p' "$0"; [ "$scope" = --help ] && exit 0 || exit 2 ;;
esac

# Without these nothing can be built.
need g++ make cmake ninja-build pkg-config python3 python3-venv ca-certificates libhwy-dev
# "package: what is skipped without it"
want "libdnnl-dev: the oneDNN module (CPU GEMMs are slower)"
want "perl-doc: the GPT example's text (give it a file with --data)"
if [ "$scope" = all ]; then
  need zlib1g-dev libcmocka-dev
  want "dataset-fashion-mnist: the MLP example"
  want "libopenmpi-dev: the MPI module and its tests"
  want "openmpi-bin: the MPI module and its tests"
  want "python3-dev: the Python binding"
  want "doxygen: the documentation and its tests"
  want "graphviz: the documentation's graphs"
  want "abigail-tools: the ABI baseline test"
  want "binutils: the export test"
  want "clang: the header tests under clang"
  want "clang-format: the format test"
fi

install_packages
if [ "${FP8_SETUP_PYTHON:-1}" = 1 ]; then
  install_venv "$scope"
elif [ "$scope" = all ]; then
  skip "Python packages: switched off; pictures, the Python binding and JAX are skipped"
else
  skip "Python packages: switched off; without matplotlib there is no picture"
fi
if [ "$scope" = all ]; then
  if [ "${FP8_SETUP_JULIA:-1}" = 1 ]; then
    install_julia
  else
    skip "julia: switched off; the Julia binding's tests are skipped"
  fi
  note_tool nvcc "the CUDA module is not built" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"
  note_tool cargo "the Rust binding's tests are skipped" "$HOME/.cargo/bin/cargo"
fi
report
