#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into a prefix with a space in its path and uses it from there as a stranger would.
# usage: check.sh pkgconfig|cmake|moved|folders|components|subproject BUILD_DIR SCRATCH_DIR
set -euo pipefail
mode=$1 build=$2 scratch=$3
here=$(cd "$(dirname "$0")" && pwd)
unset LD_LIBRARY_PATH LIBRARY_PATH CPATH DESTDIR FP8_MODULE_PATH
rm -rf "$scratch"
prefix="$scratch/a prefix"
mkdir -p "$scratch/out"
cmake --install "$build" --prefix "$prefix" >/dev/null
pc=$(find "$prefix" -name libfp8.pc)

run_both() {
  FP8_VERBOSE=1 "$scratch/out/consumer_c" 2>"$scratch/out/log"
  # so is the module, from its folder, where there is one
  if [ -e "$build/lib/libfp8_onednn.so" ]; then
    grep -E "loaded .*/fp8/libfp8_onednn\.so" "$scratch/out/log" || { cat "$scratch/out/log"; exit 1; }
  fi
  "$scratch/out/consumer_cpp"
  # the library they ran with is the installed one
  ldd "$scratch/out/consumer_c" | grep -F "libfp8.so.0 => $prefix/"
}

case $mode in
  pkgconfig)
    PKG_CONFIG_PATH=$(dirname "$pc") make -s -C "$scratch/out" -f "$here/consumer/Makefile" SOURCE="$here/consumer"
    run_both
    rm -r "$(dirname "$pc")" # what only building needs
    run_both
    (cd "$scratch" && cmake --install "$build" --prefix relative >/dev/null) # run paths stay absolute
    grep -F ":$scratch/relative/" "$(find "$scratch/relative" -name libfp8.pc)"
    ;;
  cmake)
    configure() {
      cmake -S "$here/consumer" -B "$scratch/out" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release -DWANTED=0.1 "$@"
    }
    configure >/dev/null
    cmake --build "$scratch/out" >/dev/null
    run_both
    configure -DWANTED=0.0 >/dev/null # an older minor version's users: nothing was removed
    if configure -DWANTED=1 >"$scratch/out/log" 2>&1; then echo "0.x passed for 1"; exit 1; fi
    grep -F 'requested version "1"' "$scratch/out/log"
    if configure -DCOMPONENTS=colour >"$scratch/out/log" 2>&1; then echo "a component colour was found"; exit 1; fi
    grep -F 'fp8 has no component "colour"' "$scratch/out/log"
    if [ -e "$build/lib/libfp8_mpi.so" ]; then
      configure -DCOMPONENTS=mpi >/dev/null
      cmake --build "$scratch/out" >/dev/null
      "$scratch/out/consumer_mpi"
    else
      if configure -DCOMPONENTS=mpi >"$scratch/out/log" 2>&1; then echo "a component mpi was found"; exit 1; fi
      grep -F 'this libfp8 was built without MPI' "$scratch/out/log"
    fi
    ;;
  moved) # an installed tree works after a move
    mv "$prefix" "$scratch/another prefix"
    prefix="$scratch/another prefix"
    pc=$(find "$prefix" -name libfp8.pc)
    PKG_CONFIG_PATH=$(dirname "$pc") make -s -C "$scratch/out" -f "$here/consumer/Makefile" SOURCE="$here/consumer"
    run_both
    ;;
  folders) # as a distribution installs: below /usr, and folders that are absolute
    (export DESTDIR="$scratch/usr root" && cmake --install "$build" --prefix /usr >/dev/null)
    pc=$(find "$scratch/usr root" -name libfp8.pc)
    if grep -n rpath "$pc"; then echo "a run path into /usr"; exit 1; fi
    # as another build would, of the same library; an include folder in the source's is refused by CMake
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir -p "$scratch/build/lib" "$scratch/out"
    cmake -S "$here/../.." -B "$scratch/build" -DFP8_TESTS=OFF -DFP8_EXAMPLES=OFF -DFP8_BINDINGS=OFF -DFP8_CUDA=OFF -DFP8_MPI=OFF \
      -DFP8_ONEDNN=OFF -DCMAKE_INSTALL_PREFIX="$scratch/own" -DCMAKE_INSTALL_LIBDIR="$scratch/far away/lib" \
      -DCMAKE_INSTALL_INCLUDEDIR="$scratch/far away/include" >/dev/null
    cp -P "$build"/lib/libfp8.so* "$scratch/build/lib/"
    cmake --install "$scratch/build" >/dev/null
    pc="$scratch/far away/lib/pkgconfig/libfp8.pc" prefix="$scratch/far away" build=$scratch/build
    grep -x "prefix=$scratch/own" "$pc"
    grep -xF "libdir=$scratch/far\\ away/lib" "$pc"
    PKG_CONFIG_PATH=$(dirname "$pc") make -s -C "$scratch/out" -f "$here/consumer/Makefile" SOURCE="$here/consumer"
    run_both
    ;;
  components) # together the whole, and nothing twice; the first holds what programs run with
    for part in runtime development; do
      cmake --install "$build" --prefix "$scratch/$part" --component $part >/dev/null
    done
    list() { (cd "$1" && find . ! -type d | sort); }
    diff <(list "$prefix") <(sort <(list "$scratch/runtime") <(list "$scratch/development"))
    if list "$scratch/runtime" | grep -E '\.(h|pc|cmake)$|/libfp8(_mpi)?\.so$'; then echo "^ of development"; exit 1; fi
    if list "$scratch/development" | grep -E '\.so\.'; then echo "^ of runtime"; exit 1; fi
    [ -n "$(find "$scratch/runtime" -name libfp8.so.0)" ] && [ -n "$(find "$scratch/development" -name libfp8.so)" ]
    # a .pc file is finished in its component too
    if grep -r '%' "$scratch/development" --include=libfp8*.pc; then exit 1; fi
    ;;
  subproject) # configured only: no test, target or build type comes in; what was switched off is said
    cmake -S "$here/subproject" -B "$scratch/holder" -DLIBFP8="$(cd "$here/../.." && pwd)" -DFP8_CUDA=no -DFP8_MPI=0 \
      -DFP8_ONEDNN=False >"$scratch/out/log"
    grep -E '^-- fp8: [0-9.]+ builds libfp8; not built: oneDNN module, CUDA module, MPI module, Python, JAX, tests, examples$' \
      "$scratch/out/log"
    ctest --test-dir "$scratch/holder" -N | grep -x 'Total Tests: 1'
    grep -x 'CMAKE_BUILD_TYPE:STRING=' "$scratch/holder/CMakeCache.txt"
    ;;
  *) exit 2 ;;
esac
rm -rf "$scratch"
