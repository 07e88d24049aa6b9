#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_pieces.sh FOLDER GPT NO_LOCKS OPTIONS...   NO_LOCKS: a library that takes flock() away
# A comparison that is killed and stopped again and again ends with the same numbers as one in a single piece.
set -eu
folder=$1 gpt=$2 no_locks=$3
shift 3
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
options=("$@" --steps 100 --recipe mx --fault dy-e4m3-tensor)
"$gpt" "${options[@]}" --out whole >whole.log 2>&1
signals=(KILL TERM) deaths=0 saved=0
for ((i = 1; i <= 60; ++i)); do
  rc=0 # a machine under load is given more time each round
  timeout -s ${signals[i % 2]} "0.$((i < 9 ? i : 9))" "$gpt" "${options[@]}" --checkpoint kept --checkpoint-every 7 \
    --out pieces >pieces.log 2>&1 || rc=$?
  [ $rc != 0 ] || break
  deaths=$((deaths + 1))
  if grep -q "the same command goes on" pieces.log; then saved=$((saved + 1)); fi
done
[ $rc = 0 ] || { cat pieces.log; echo "never done"; exit 1; }
# a verdict is of the loss and of the counters, neither hides the other
grep -Eq "^\| TENSOR dy-e4m3-tensor .*\| +(WORSE|within noise), UNDERFLOW \|" whole/table.md || { cat whole/table.md; exit 1; }
[ $deaths -gt 1 ] || { echo "it was too fast to be killed"; exit 1; }
cmp whole/curves.csv pieces/curves.csv
cmp <(cut -d, -f1-7,9- whole/runs.csv) <(cut -d, -f1-7,9- pieces/runs.csv) # all but tokens/s
if grep -q ",0$" <(cut -d, -f8 pieces/runs.csv | sed s/^/,/); then echo "a run has no speed"; exit 1; fi
if ls kept/*.state 2>/dev/null; then echo "states are left"; exit 1; fi
# a result of other steps is not taken, nor one that is damaged
if "$gpt" "${options[@]}" --steps 99 --checkpoint kept >log 2>&1; then exit 1; fi
grep -q -- "--steps is 100 there, 99 here" log
tr e o <"$2" >other # of the same size: $1 is --data
if "$gpt" "${options[@]}" --data other --checkpoint kept >log 2>&1; then exit 1; fi
grep -q "the text, as a number, is" log
printf '\377' | dd of=kept/mx-1.result bs=1 seek=600 conv=notrunc status=none
if "$gpt" "${options[@]}" --checkpoint kept >log 2>&1; then exit 1; fi
grep -q "is damaged" log
# processes that share a comparison, each a part of the runs and of the steps
options=("$@" --steps 40 --recipe "tensor,tensor;fast=none" --checkpoint shared --out shared-out)
"$gpt" "$@" --steps 40 --recipe "tensor,tensor;fast=none" --out whole >whole.log 2>&1
rc=0
"$gpt" "${options[@]}" --only none-2,tensor-1 --until 15 >log 2>&1 || rc=$?
[ $rc = 75 ] && [ "$(echo shared/*)" = "shared/none-2.state shared/tensor-1.state" ] || { cat log; ls shared; exit 1; }
"$gpt" "${options[@]}" --only "none-1,tensor;fast=none-1" >log 2>&1
[ ! -e shared-out/table.md ] || { echo "a part made a table"; exit 1; }
"$gpt" "${options[@]}" >log 2>&1
cmp whole/curves.csv shared-out/curves.csv
[ "$(cut -d, -f1 shared-out/runs.csv | tr '\n' ' ')" = "run none tensor tensor;fast=none none " ] || { cat shared-out/runs.csv; exit 1; }
if "$gpt" "${options[@]}" --only none-3 >log 2>&1; then exit 1; fi
grep -q "which are none-1 tensor-1 tensor;fast=none-1 none-2" log
if "$gpt" "${options[@]}" --only "" >log 2>&1; then echo "no runs were named"; exit 1; fi
grep -q -- "gpt: --only : names of runs are needed, which are none-1 " log || { cat log; exit 1; }
# a recipe's text names a file of the folder and a row of each table, however long it is, slashes included
long="block;w=bf16/unquantized;coverage=wgrad;scale=fp32;amax_floor=0x1.8p-30;master=direct"
title="BLOCK ${long#block;}" kept="deep/slash/${long//\//_}-1.result"
title=${title//;/ }
for again in no yes; do
  "$gpt" "$@" --steps 10 --recipe "$long" --checkpoint deep/slash --out slash-out >log 2>&1 || { cat log; exit 1; }
  [ -e "$kept" ] || { find deep; echo "$kept is not there"; exit 1; }
  [ "$(grep -cF "| $title |" slash-out/table.md)" = 3 ] || { cat slash-out/table.md; echo "a table cuts $title"; exit 1; }
  grep -qF "$long,1,10," slash-out/runs.csv || { cat slash-out/runs.csv; exit 1; }
  if [ $again = no ]; then grep -qF "$title seed 1 " log; else ! grep "step 1\|measuring" log; fi || { cat log; exit 1; }
done
# one process at a time trains a run: the second is refused before it trains, with the file's name, and disturbs nobody
options=("$@" --steps 3000 --recipe none --checkpoint held --checkpoint-every 1 --out held-out)
"$gpt" "${options[@]}" --only none-1 >log 2>&1 &
first=$!
trap 'kill -9 $first 2>/dev/null || true' EXIT
for ((i = 0; i < 100; ++i)); do [ -e held/none-1.state ] && break; sleep 0.1; done
for only in "" "--only none-1"; do
  rc=0
  timeout 20 "$gpt" "${options[@]}" $only >second.log 2>&1 || rc=$?
  says="gpt: --checkpoint held: held/none-1.lock is locked: another process trains BF16, seed 1"
  if [ $rc != 2 ] || ! grep -qF "$says" second.log; then echo "a second process: $rc"; cat second.log; exit 1; fi
  if grep -q "measuring\|step " second.log; then echo "it trained first"; cat second.log; exit 1; fi
done
kill -9 $first || { cat log; echo "the first process ended"; exit 1; }
wait $first 2>/dev/null || true
[ -e held/none-1.lock ] || { ls held; echo "there is no file that could be stale"; exit 1; }
rc=0 # it locks nothing any more
"$gpt" "${options[@]}" --only none-1 --until 1 >log 2>&1 || rc=$?
[ $rc = 75 ] && [ ! -e held/none-1.lock ] || { cat log; ls held; exit 1; }
# a file system without locks is told of, and trained on
rc=0
LD_PRELOAD=$no_locks "$gpt" "${options[@]}" --only none-1 --until 2 >log 2>&1 || rc=$?
[ $rc = 75 ] && grep -q "^held/none-1.lock cannot be locked (.*): nothing keeps another process" log || { cat log; exit 1; }
echo "killed or stopped $deaths times ($saved after saving): the same numbers"
