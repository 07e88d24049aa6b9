#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds libfp8 and its examples, and trains a small GPT in BF16 and with every FP8 recipe: on
# the CPU, or with --device cuda on a GPU (needs nvcc 13 with cublasLt.h; building for it takes longer).
# Can be run again: what is installed and built stays, the training runs anew. Arguments go to the GPT, e.g. --minutes 2.
set -euo pipefail
cd "$(dirname "$0")/.."

bad() { printf 'demo.sh: %s (see --help)\n' "$1" >&2; exit 2; }

# Wrong arguments are said before anything is installed or built.
out=out/gpt build=build/demo cuda=(-DFP8_CUDA=OFF)
arguments=("$@")
for ((i = 0; i < $#; i += 2)); do
  name=${arguments[i]} value=${arguments[i + 1]:-}
  case "$name" in
    --help | -h)
      sed -n '3,5s/^# //p' scripts/demo.sh
      [ ! -x $build/examples/c/gpt ] || exec $build/examples/c/gpt --help
      echo "The GPT's own options (--minutes M, --recipe LIST, --seeds N, --out DIR, ...) are listed here once it is built."
      exit 0
      ;;
  esac
  grep -qF -e "option_is(\"$name\"," examples/c/gpt/options.c || bad "$name: there is no such option"
  [ $((i + 1)) -lt $# ] || bad "$name: a value is needed"
  case "$name=$value" in
    --out=*) out=$value ;;
    --device=cpu) ;;
    --device=cuda | --device=cuda:[0-9]*)
      nvcc=$(PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" command -v nvcc) ||
        bad "--device $value: nvcc (CUDA 13) is needed, and was not found in PATH or ${CUDA_HOME:-/usr/local/cuda}"
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

$build/examples/c/gpt --out "$out" "$@"

python=python3
[ ! -x .dev/venv/bin/python ] || python=.dev/venv/bin/python
if "$python" -c 'import matplotlib' 2>/dev/null; then
  "$python" scripts/plot_curves.py "$out"
else
  echo "no picture: matplotlib is not installed (scripts/setup.sh demo says why); then: scripts/plot_curves.py $out"
fi
echo "tables and curves (Markdown, CSV): $out"
sed -n '/NOT AVAILABLE/,$p' .dev/setup-report.txt
