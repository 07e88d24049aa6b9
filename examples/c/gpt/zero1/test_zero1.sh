#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_zero1.sh resume|kill|damage|death FOLDER PROGRAM RANKS_OPTION -- OPTIONS...
# What a checkpoint promises: the same losses again at the same number of ranks, the same state at another, and the old
# file after a kill in the middle of writing. And what happens to the others when a rank dies. PROGRAM takes RANKS_OPTION
# and a number first: mpiexec -n N gpt_mpi, or gpt_zero1 --ranks N. Ends with 77 where the devices are not there.
set -eu
part=$1 folder=$2 program=$3 flag=$4
shift 5
options=("$@" --recipe mx --steps 6)
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

run() { # ranks, options
  local ranks=$1 rc=0
  shift
  "$program" "$flag" "$ranks" "${options[@]}" "$@" >log 2>&1 || rc=$?
  if [ $rc = 77 ]; then cat log; exit 77; fi # fewer devices
  return $rc
}
must() { "$@" || { echo "failed: $*"; cat log; exit 1; }; }
must_fail() { # with this text
  local text=$1
  shift
  if "$@"; then echo "did not fail: $*"; exit 1; fi
  grep -q -- "$text" log || { echo "failed without saying '$text': $*"; cat log; exit 1; }
}
values() { cut -d' ' -f3- "$1"; } # without the names of recipe and gather

[ "$part" = death ] || must run 2 --stop 3 --checkpoint half
case $part in
  resume)
    must run 2 --losses whole.txt --checkpoint whole
    must run 2 --losses repeat.txt --checkpoint repeat
    must cmp whole.txt repeat.txt
    must cmp whole repeat
    must test ! -e whole.lock
    cp whole kept
    (
      flock 9
      must_fail "kept.lock is locked: another process writes" run 2 --checkpoint kept
    ) 9>kept.lock
    must cmp whole kept
    must run 2 --resume kept --checkpoint kept # a file that is left locks nothing
    must run 2 --resume half --losses second.txt --checkpoint second
    tail -n 3 whole.txt >expected.txt
    must cmp expected.txt second.txt
    must cmp whole second
    must run 2 --resume half --param-gather bf16 --losses bf16.txt
    must cmp <(values expected.txt) <(values bf16.txt)
    for ranks in 1 3; do
      if ! (run $ranks --resume half --stop 3); then echo "not on $ranks ranks:"; tail -n 2 log; continue; fi
      must run $ranks --resume half --stop 3 --checkpoint same
      must cmp half same
      must run $ranks --resume half --stop 4 --losses first.txt
      must cmp <(head -n 1 expected.txt) first.txt
    done
    ;;
  kill)
    size=$(stat -c %s half)
    cp half victim
    for at in 0 $((size / 2)) $((size + 1)); do
      if run 2 --resume victim --checkpoint victim --kill-at "$at"; then echo "nothing was killed at $at"; exit 1; fi
      must cmp half victim
      must test -e victim.tmp
      rm victim.tmp
    done
    must run 2 --resume victim --checkpoint victim
    must run 2 --checkpoint whole
    must cmp whole victim
    must test ! -e victim.tmp
    ;;
  damage)
    head -c 100000 half >cut
    must_fail "cut is cut" run 2 --resume cut
    cp half changed
    printf '\377' | dd of=changed bs=1 seek=70001 conv=notrunc status=none
    must_fail "changed is damaged" run 2 --resume changed
    must_fail "layers is 1 there, 2 here" run 2 --layers 2 --resume half
    must_fail "the recipe is" run 2 --recipe block --resume half
    must_fail "cannot read missing" run 2 --resume missing
    must_fail "--checkpoint no/folder: cannot write there" run 2 --stop 1 --checkpoint no/folder
    ;;
  death)
    start=$SECONDS
    if run 2 --timeout 10 --kill-rank 1 --kill-step 3; then echo "nothing died"; exit 1; fi
    must grep -q "rank 1 was killed by signal 9" log
    must grep -q "FP8_ERR_COMM" log
    must grep -q "rank 0 ended with status 1" log
    if grep "did not notice" log; then exit 1; fi
    must test $((SECONDS - start)) -lt 60
    ;;
  *) echo "unknown part $part" && exit 2 ;;
esac
echo "$part: all as promised"
