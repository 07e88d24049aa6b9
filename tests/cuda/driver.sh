#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the CUDA module says of a driver that it cannot use: one that lacks functions, one that is too old, one that fails.
# usage: driver.sh COMPILER PROGRAM      PROGRAM: one of tests/capi, which prints why there is no context
set -eu
compiler=$1 program=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

must_say() { # VERSION, what cuInit returns, sentence; VERSION 0: a library without functions
  {
    if [ "$1" != 0 ]; then
      echo "int cuInit(unsigned flags) { (void)flags; return $2; }"
      echo "int cuDriverGetVersion(int *version) { *version = $1; return 0; }"
      for name in cuDeviceGet cuDevicePrimaryCtxRetain cuCtxGetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2; do
        echo "int $name(void) { return 1; }"
      done
    fi
  } >"$scratch/driver.c"
  "$compiler" -shared -fPIC -o "$scratch/libcuda.so.1" "$scratch/driver.c"
  FP8_TEST_BACKEND=cuda LD_LIBRARY_PATH="$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$program" >"$scratch/log" 2>&1 || true
  grep -qF -- "$3" "$scratch/log" || { echo "version $1: not said: $3"; cat "$scratch/log"; exit 1; }
}

must_say 0 0 "libcuda.so.1 lacks symbols this module needs: the NVIDIA driver is too old"
must_say 12080 0 "the NVIDIA driver serves CUDA 12.8, this module needs 13.0: update the driver"
must_say 13000 999 "cuInit failed with 999: no usable CUDA device"
must_say 13000 100 "the NVIDIA driver finds no CUDA device"
