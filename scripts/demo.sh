#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds libfp8 and its examples, and trains a small GPT in BF16 and with every FP8 recipe: on
# the CPU, or with --device cuda on a GPU (needs an NVIDIA driver and nvcc 13 with cublasLt.h; building for it takes longer).
# Can be run again: what is installed and built stays, the training runs anew. Arguments go to the GPT, e.g. --minutes 2.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
source scripts/demo_options.sh

# Wrong arguments are said before anything is installed or built.
out=out/gpt build=build/demo cuda=(-DFP8_CUDA=OFF)
arguments=("$@")
for ((i = 0; i < $#; i += 2)); do
  name=${arguments[i]} value=${arguments[i + 1]:-}
  case "$name" in
    --help | -h)
      sed -n '3,5s/^# //p' scripts/demo.sh
      echo
      gpt_help
      exit 0
      ;;
  esac
  gpt_has "$name" || bad "$name: there is no such option"
  [ $((i + 1)) -lt $# ] || bad "$name: a value is needed"
  check_number "$name" "$value"
  case "$name=$value" in
    --out=/* | --data=/* | --checkpoint=/*) ;;
    --out=?* | --data=?* | --checkpoint=?*) [ "$from" = "$PWD" ] || arguments[i + 1]=$from/$value ;;
  esac
  case "$name=$value" in
    --out=*) out=${arguments[i + 1]} ;;
    --data=*) [ -r "${arguments[i + 1]}" ] && [ ! -d "${arguments[i + 1]}" ] || bad "$name $value: this file cannot be read" ;;
    --recipe=*) check_recipes "$value" ;;
    --device=cpu) build=build/demo cuda=(-DFP8_CUDA=OFF) ;;
    --device=cuda | --device=cuda:[0-9]*)
      nvcc=$(PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" command -v nvcc) ||
        bad "--device $value: nvcc (CUDA 13) is needed, and was not found in PATH or ${CUDA_HOME:-/usr/local/cuda}"
      loads libcuda.so.1 || bad "--device $value: no NVIDIA driver is installed (libcuda.so.1); one of CUDA 13.0 or newer is needed"
      build=build/demo-cuda cuda=(-DFP8_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc")
      ;;
    --device=*) bad "$name $value: cpu, cuda or cuda:N is needed" ;;
  esac
done

scripts/setup.sh demo

mkdir -p out
log=out/demo-build.log
# A folder of its own: only the GPT is built in it.
echo "building into $build (log: $log)"
if ! { cmake -S . -B $build -G Ninja -DFP8_TESTS=OFF "${cuda[@]}" -DFP8_MPI=OFF -DFP8_BINDINGS=OFF &&
  cmake --build $build --parallel --target fp8_demo; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "the build failed; the whole log is in $log" >&2
  exit 1
fi

$build/examples/c/gpt --out "$out" ${arguments[@]+"${arguments[@]}"}

python=python3
[ ! -x .dev/venv/bin/python ] || python=.dev/venv/bin/python
if "$python" -c 'import matplotlib' 2>/dev/null; then
  "$python" scripts/plot_curves.py "$out"
else
  echo "no picture: matplotlib is not installed (scripts/setup.sh demo says why); then: .dev/venv/bin/python scripts/plot_curves.py $out"
fi
echo "tables and curves (Markdown, CSV): $out"
sed -n '/NOT AVAILABLE/,$p' .dev/setup-report.txt
