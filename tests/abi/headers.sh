#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, twice in a row, in every C and C++ from 1999 on, without a warning and without
# implicit padding. usage: headers.sh INCLUDE_FOLDER BUILT_INCLUDE_FOLDER
set -euo pipefail
include=$1 built=$2
strict=(-pedantic -Wall -Wextra -Wpadded -Wundef -Wshadow -Wconversion -Werror -fsyntax-only)
count=0 bad=0

try() { # COMPILER LANGUAGE STANDARD HEADER EXTRA...
  command -v "$1" >/dev/null || return 0
  local compiler=$1 language=$2 standard=$3 header=$4
  shift 4
  printf '#include <%s>\n#include <%s>\nextern int one_declaration;\n' "$header" "$header" |
    "$compiler" -x "$language" -std="$standard" "${strict[@]}" "$@" -I"$include" -I"$built" - ||
    { echo "$header: $compiler -std=$standard"; bad=1; }
  count=$((count + 1))
}

for path in "$include"/*/*.h "$built"/fp8/version.h; do
  header=$(basename "$(dirname "$path")")/$(basename "$path")
  for standard in c99 c11 c17; do
    try gcc c $standard "$header" -Wstrict-prototypes -Wmissing-prototypes
    try clang c $standard "$header" -Wstrict-prototypes -Wdocumentation
  done
  for standard in c++11 c++14 c++17 c++20; do
    try g++ c++ $standard "$header"
    try clang++ c++ $standard "$header"
  done
done
echo "$count compilations"
[ $count -gt 0 ] && exit $bad
