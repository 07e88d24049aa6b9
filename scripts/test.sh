#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed, builds everything whose toolchain is present, runs every test, then the unit and API tests
# again under the sanitizers. Prints a table of the time each ctest label took.
# usage: scripts/test.sh [--no-setup] [--no-sanitizers] [-DNAME=VALUE...]   (options of the main build)
set -euo pipefail
cd "$(dirname "$0")/.."
setup=1 sanitizers=1 options=()
for arg in "$@"; do
  case "$arg" in
    --no-setup) setup=0 ;;
    --no-sanitizers) sanitizers=0 ;;
    -D*) options+=("$arg") ;;
    *) sed -n '3,5s/^# //p' "$0"; [ "$arg" = --help ] && exit 0 || exit 2 ;;
  esac
done

jobs=$(nproc)
logs=build/logs
mkdir -p $logs
: >$logs/stages.tsv
export CTEST_OUTPUT_ON_FAILURE=1

failed=""
# stage NAME COMMAND...: runs it, notes its wall time, hides its output unless it fails. A failed test stage lets the
# others run; any other ends the script.
stage() {
  local name=$1 begin=$SECONDS rc=0 log
  shift
  log="$logs/${name// /-}.log"
  printf '== %s ... ' "$name"
  "$@" >"$log" 2>&1 || rc=$?
  printf '%d s\n' $((SECONDS - begin))
  printf '%s\t%d\n' "$name" $((SECONDS - begin)) >>$logs/stages.tsv
  if [ $rc != 0 ]; then
    tail -n 100 "$log"
    printf 'FAILED: %s (all of its output: %s)\n' "$name" "$log"
    case "$name" in test*) failed="$failed, $name" ;; *) exit $rc ;; esac
  fi
}

# ctest_in PRESET ARGS...
ctest_in() {
  local preset=$1
  shift
  ctest --test-dir "build/$preset" -j "$jobs" --timeout 900 --no-tests=error "$@"
}

if [ $setup = 1 ]; then scripts/setup.sh; fi
# Python of the setup's venv, with its packages and its SWIG, where there is one
python=/usr/bin/python3
if [ -x .dev/venv/bin/python ]; then python=$PWD/.dev/venv/bin/python; fi
PATH="$PWD/.dev/venv/bin:$PATH"

stage "configure release" cmake --preset release -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python" \
  ${options[@]+"${options[@]}"}
grep -E '^-- fp8:' $logs/configure-release.log || true
stage "build release" cmake --build build/release -j "$jobs"
if [ $sanitizers = 1 ]; then
  for sanitizer in asan tsan; do
    stage "configure $sanitizer" cmake --preset $sanitizer -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python"
    stage "build $sanitizer" cmake --build build/$sanitizer -j "$jobs"
  done
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1
  stage "test asan" ctest_in asan -L '^(unit|capi|golden|cuda-host)$' -LE '^slow$'
  # ThreadSanitizer cannot map its shadow where addresses are too random
  plain=""
  if setarch "$(uname -m)" -R true 2>/dev/null; then plain="setarch $(uname -m) -R"; fi
  stage "test tsan" $plain ctest --test-dir build/tsan -j "$jobs" --timeout 900 --no-tests=error -L '^(unit|capi)$' -LE '^slow$'
fi

begin=$SECONDS rc=0
ctest_in release --output-junit ctest.xml 2>&1 | tee $logs/test-release.log || rc=$?
printf 'test release\t%d\n' $((SECONDS - begin)) >>$logs/stages.tsv
"$python" scripts/budget.py build/release $logs/stages.tsv
if [ $setup = 1 ]; then sed -n '/NOT AVAILABLE/,$p' .dev/setup-report.txt; fi
# ctest's own last words, again as the last thing seen
if [ -n "$failed" ]; then printf 'FAILED above: %s\n' "${failed#, }"; fi
sed -n '/tests passed,/,$p' $logs/test-release.log | grep -vE '^(Label Time Summary|[A-Za-z_-]+ +=)' || true
if [ -n "$failed" ] && [ $rc = 0 ]; then rc=1; fi
exit $rc
