#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A module whose tables are laid out otherwise is refused, and explain() says so. Planted: one digit of its build id.
# usage: other_module.sh MODULE LIBRARY COMPILER INCLUDE_FOLDERS...
set -euo pipefail
module=$1 library=$2 compiler=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
id=$(grep -aoE '[0-9]+\.[0-9]+\.[0-9]+-[0-9a-f]{12}' "$module" | sort -u)
[ "$(wc -l <<<"$id")" = 1 ] || { echo "not one build id in $module: $id"; exit 1; }
grep -aqF "$id" "$library" || { echo "the library's build id is not $id"; exit 1; }
other=${id%?}$([ "${id: -1}" = 0 ] && echo 1 || echo 0)
mkdir "$scratch/same" "$scratch/other"
cp "$module" "$scratch/same/"
sed "s/$id/$other/g" "$module" >"$scratch/other/$(basename "$module")"
"$compiler" "${@/#/-I}" "$here/consumer/main.c" -o "$scratch/program" "$library" "-Wl,-rpath,$(dirname "$library")"
for folder in same other; do FP8_MODULE_PATH="$scratch/$folder" "$scratch/program" >"$scratch/$folder.txt"; done
refusal="is of build $other, the library of $id"
grep -F "$refusal" "$scratch/other.txt" || { cat "$scratch/other.txt"; exit 1; }
if grep -F "is of build" "$scratch/same.txt"; then exit 1; fi
