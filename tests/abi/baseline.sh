#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the library's ABI with the committed baseline; additions are fine, changes are not. After a knowing change:
#   tests/abi/baseline.sh refresh build/release/lib/libfp8.so
# Both sides are XML made by the same command: a comparison of XML against a library, given header folders, reports
# nothing even for a changed member. Enumerators are in constants.txt. usage: baseline.sh check|refresh|teeth LIBRARY
set -euo pipefail
mode=$1 library=$2
cd "$(dirname "$0")/../.."
baseline=tests/abi/baseline.xml

dump() { # LIBRARY OUT: the public types only, no places of this machine
  abidw --no-corpus-path --no-comp-dir-path --no-show-locs --type-id-style hash --headers-dir include \
    --suppressions tests/abi/private.ini --drop-private-types --drop-undefined-syms --out-file "$2" "$1"
  grep -q '<function-decl' "$2" || { echo "no function was read: was the library built with -g?"; return 1; }
}

compare() { abidiff --no-added-syms "$1" "$2"; }

if [ "$mode" = refresh ]; then dump "$library" $baseline; exit; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dump "$library" "$scratch/now.xml"
case $mode in
  check)
    rc=0
    compare $baseline "$scratch/now.xml" || rc=$?
    [ $rc = 0 ] || { echo "the ABI differs from its baseline (abidiff: $rc); see the head of tests/abi/baseline.sh"; exit 1; }
    ;;
  teeth) # planted changes must be seen: a type's width, a struct's size, a function's name
    plant() {
      sed -E "$1" "$scratch/now.xml" >"$scratch/changed.xml"
      ! cmp -s "$scratch/now.xml" "$scratch/changed.xml" || { echo "nothing to plant: $1"; exit 1; }
      local rc=0
      compare "$scratch/changed.xml" "$scratch/now.xml" >/dev/null || rc=$?
      # bit 4: a change, bit 8: an incompatible one; others are abidiff's own failures
      [ $rc = 4 ] || [ $rc = 12 ] || { echo "not seen ($rc): $1"; exit 1; }
    }
    plant "s/(<type-decl name='unsigned int' size-in-bits=)'32'/\1'64'/"
    plant "s/(<class-decl name='fp8_tensor' size-in-bits=)'[0-9]+'/\1'704'/"
    plant "s/fp8_status_name/fp8_status_nick/g"
    echo "3 changes planted, all seen"
    ;;
  *) exit 2 ;;
esac
