#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library may need libc, libm, the loader and pthread, and nothing else. usage: needed.sh LIBRARY
set -euo pipefail
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
echo "$needed"
[ -n "$needed" ] || { echo "no NEEDED entry was read"; exit 1; }
if grep -vE '^(libc|libm|libpthread|libdl|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]+$' <<<"$needed"; then
  echo "^ the library must not need these"
  exit 1
fi
readelf -d "$1" | grep -F '(SONAME)' | grep -qF '[libfp8.so.0]' || { echo "the soname is not libfp8.so.0"; exit 1; }
if readelf -d "$1" | grep -E '\((RPATH|RUNPATH|TEXTREL)\)'; then echo "^ not wanted in the library"; exit 1; fi
