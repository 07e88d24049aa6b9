#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_plot.sh FOLDER PYTHON
# scripts/plot_curves.py: its table by a known answer, and what it says where something is missing.
set -eu
folder=$1 python=$2
plot=$(cd "$(dirname "$0")/../../.." && pwd)/scripts/plot_curves.py
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

says() { # RC TEXT PYTHON-AND-ARGUMENTS...
  local wanted=$1 text=$2 rc=0
  shift 2
  "$@" >log 2>&1 || rc=$?
  if [ $rc != "$wanted" ] || ! grep -qF -- "$text" log || grep -q Traceback log; then
    echo "$*: ended with $rc, not with $wanted and '$text'"
    cat log
    exit 1
  fi
}

# -S: without site-packages, so without matplotlib
says 0 "usage: plot_curves.py DIR" "$python" -S "$plot" --help
says 1 "usage: plot_curves.py DIR" "$python" -S "$plot"
says 1 "this Python has no matplotlib; " "$python" -S "$plot" .
if ! "$python" -c "import matplotlib" 2>/dev/null; then
  echo "matplotlib is not installed: the picture and its table are not tested"
  exit 0
fi
says 1 "none/curves.csv: No such file" "$python" "$plot" none
{
  echo "run,seed,step,loss"
  for step in $(seq 20); do printf 'none,1,%d,%d.5\nmx,1,%d,%d.75\n' "$step" $((30 - step)) "$step" $((30 - step)); done
} >curves.csv
says 0 "in each tenth of the steps" "$python" "$plot" .
says 0 "| MX |$(printf ' +0.2500 |%.0s' $(seq 10))" "$python" "$plot" .
[ -s curves.png ]
echo "drawn and printed as it should"
