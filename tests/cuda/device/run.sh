#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in one go; logs and tables go to a folder, a summary to the terminal.
# usage: tests/cuda/device/run.sh BUILD OUTPUT [correct|capi|few|speed|sanitize]...   (default: correct capi speed)
# Several GPUs: ranks.sh, beside this file.
set -u
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
[ $# -gt 0 ] || set -- correct capi speed
export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FP8_TEST_BACKEND=cuda
bad=0
step() {  # NAME SECONDS COMMAND...: the log's last lines, and whether it passed
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  echo "== $name: $([ $code -eq 0 ] && echo passed || echo "FAILED ($code)"), $((SECONDS - begin)) s"
  [ $code -eq 0 ] || { bad=$((bad + 1)); tail -n "${TAIL:-12}" "$out/$name.log"; }
}
for part in "$@"; do
  case $part in
    correct)
      step probe 120 "$build/bench/probe_cuda"
      step quantize 240 "$build/bench/test_quantize_device" "${CASES:-600}"
      step gemm 240 "$build/bench/test_gemm_device"
      step linear 240 "$build/bench/test_linear_device"
      step large 240 "$build/bench/test_large_device"
      ;;
    capi)
      for program in "$build"/tests/capi/test_capi_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then step "$(basename "$program")" 120 "$program"; fi
      done
      ;;
    few)  # capi, on three multiprocessors
      for program in "$build"/tests/capi/test_capi_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then FP8_TEST_MAX_SMS=3 step "few_$(basename "$program")" 120 "$program"; fi
      done
      ;;
    speed)
      step bench_enqueue 120 "$build/bench/bench_cuda_enqueue"
      step bench_quantize 400 "$build/bench/bench_cuda_quantize"
      step bench_linear 300 "$build/bench/bench_cuda_linear"
      step bench_param 120 "$build/bench/bench_cuda_param"
      step bench_gemm 1200 "$build/bench/bench_cuda_gemm"
      ;;
    sanitize)
      for tool in memcheck racecheck initcheck synccheck; do
        step "sanitize_$tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/bench/test_quantize_device" "${CASES:-60}"
      done
      step sanitize_gemm 300 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bench/test_linear_device"
      ;;
    *)
      echo "no part $part" && exit 2
      ;;
  esac
done
echo "$bad failed; logs in $out"
[ $bad -eq 0 ]
