#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds libfp8 and its examples, and trains a small GPT in BF16 and with every FP8 recipe.
# Can be run again: what is installed and built stays, the training runs anew. Arguments go to the GPT, e.g. --minutes 2.
set -euo pipefail
cd "$(dirname "$0")/.."

# A folder of its own: only the GPT is built in it.
build=build/demo
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      sed -n '3,4s/^# //p' scripts/demo.sh
      [ ! -x $build/examples/c/gpt ] || exec $build/examples/c/gpt --help
      echo "The GPT's own options (--minutes M, --recipe LIST, --seeds N, --out DIR, ...) are listed here once it is built."
      exit 0
      ;;
  esac
done

# Julia and the Python bindings are not needed here; matplotlib, for the picture, comes with the Python packages.
FP8_SETUP_JULIA=0 scripts/setup.sh

mkdir -p out
log=out/demo-build.log
echo "building into $build (log: $log)"
if ! { cmake -S . -B $build -G Ninja -DFP8_TESTS=OFF -DFP8_CUDA=OFF -DFP8_MPI=OFF -DFP8_BINDINGS=OFF &&
  cmake --build $build --parallel --target fp8_demo; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "the build failed; the whole log is in $log" >&2
  exit 1
fi

out=out/gpt
arguments=("$@")
for ((i = 0; i < ${#arguments[@]}; i++)); do
  case "${arguments[i]}" in
    --out) out="${arguments[i + 1]:-$out}" ;;
  esac
done
$build/examples/c/gpt --out "$out" "$@"

python=python3
[ ! -x .dev/venv/bin/python ] || python=.dev/venv/bin/python
if "$python" -c 'import matplotlib' 2>/dev/null; then
  "$python" scripts/plot_curves.py "$out"
else
  echo "no picture: matplotlib is not installed (scripts/setup.sh says why); then: scripts/plot_curves.py $out"
fi
echo "tables and curves (Markdown, CSV): $out"
sed -n '/NOT AVAILABLE/,$p' .dev/setup-report.txt
