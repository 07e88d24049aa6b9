#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C and C++ file looks as .clang-format says; generated ones apart. usage: format.sh [--fix]
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files '*.h' '*.c' '*.cpp' '*.cu' '*.cuh' | grep -vE '^bindings/gen/layout\.c$')
[ ${#files[@]} -gt 0 ] || { echo "no file found"; exit 1; }
if [ "${1:-}" = --fix ]; then clang-format -i "${files[@]}"; exit; fi
echo "${#files[@]} files read"
clang-format --dry-run --Werror "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error.*/\1: run tests\/lint\/format.sh --fix/p' | sort -u | {
  ! grep .
}
