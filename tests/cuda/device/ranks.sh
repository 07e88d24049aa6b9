#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What needs several GPUs, over NCCL, at 2, 4, 8 ... ranks: the suites of tests/capi with a process a GPU and with a
# thread a GPU, graphs, stalled and killed ranks, other devices than the current one; the tables of bench_cuda_ranks.
# usage: tests/cuda/device/ranks.sh BUILD OUTPUT [RANKS...]   LIMIT=seconds in all; fewer than two GPUs: 77
set -u
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -ge 2 ] || { echo "$gpus GPUs; two are needed"; exit 77; }
if [ $# -eq 0 ]; then
  for n in 2 4 8 16; do [ $n -le "$gpus" ] && set -- "$@" $n; done
fi
export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}"
bad=0
step() {  # NAME SECONDS COMMAND...: the log's last lines, and whether it passed
  local name=$1 limit=$2 begin=$SECONDS left=$((${LIMIT:-3600} - SECONDS)) code=124
  shift 2
  [ $left -lt "$limit" ] && limit=$left
  if [ "$limit" -gt 0 ]; then
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
  else
    echo "no time was left" >"$out/$name.log"
  fi
  echo "== $name: $([ $code -eq 0 ] && echo passed || echo "FAILED ($code)"), $((SECONDS - begin)) s"
  [ $code -eq 0 ] || { bad=$((bad + 1)); grep -vE "RUN  |  OK \]" "$out/$name.log" | tail -n "${TAIL:-8}"; }
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/gpus.txt"
tests() {  # RANKS process|thread
  for name in ranks_device ranks_streams param_cuts dispatch all_gather comm; do
    step "nccl_${name}_$1_$2" 40 "$build/bench/test_nccl_$name" "$1" "$2"
  done
}
for n in "$@"; do
  tests "$n" process
  step "bench_cuda_ranks_$n" 90 "$build/bench/bench_cuda_ranks" "$n" process
  grep '^|\|NCCL' "$out/bench_cuda_ranks_$n.log"
  tests "$n" thread
done
for name in linear quantize gemm param; do  # on a device that is not the current one
  FP8_TEST_BACKEND=cuda FP8_TEST_DEVICE=1 step "capi_${name}_device_1" 40 "$build/tests/capi/test_capi_$name"
done
echo "$bad failed; logs in $out"
[ $bad -eq 0 ]
