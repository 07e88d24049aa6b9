#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_options.sh FOLDER BINARIES [mlp]
# What a command line gets wrong is said before anything is trained, by the program's name, and ends with 2.
set -eu
folder=$1 bin=$2 mlp=${3:-}
demo=$(cd "$(dirname "$0")/../../.." && pwd)/scripts/demo.sh
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

refused() { # TEXT PROGRAM OPTIONS...
  local text=$1 program=$2 rc=0
  shift 2
  case $program in /*) ;; *) program=$bin/$program ;; esac
  timeout 20 "$program" "$@" >log 2>&1 || rc=$?
  if [ $rc != 2 ] || ! grep -qF -- "$text" log; then
    echo "$program $*: ended with $rc, not with 2 and '$text'"
    cat log
    exit 1
  fi
  if grep -q "measuring\|step " log; then echo "$program $*: trained first"; exit 1; fi
}

touch file
for program in quantize step shared_x allocator; do
  refused "$program: --bogus: there is no such option (see --help)" $program --bogus
  "$bin/$program" --help | grep -q "^$program: " || { echo "$program has no --help"; exit 1; }
done
for program in gpt gpt_zero1 $mlp; do
  refused "$program: --steps=5: there is no such option; a value" $program --steps=5
  refused "$program: --bogus: there is no such option (see --help)" $program --bogus
  refused "$program: --bogus: there is no such option (see --help)" $program --bogus 1
  refused "$program: 5: there is no such option (see --help)" $program 5
  refused "$program: --steps: a value is needed (see --help)" $program --steps
  refused "$program: --steps none: a whole number from 1" $program --steps none
  refused "$program: --recipe foo: all, none, tensor" $program --recipe mx,foo
  refused "tensorwise" $program --recipe foo
  refused "not offered" $program --recipe delayed
  refused "$program: --device tpu: cpu, cuda" $program --device tpu
  "$bin/$program" --help >$program.txt
done
refused "gpt: --out file: cannot write there: file is not a folder" gpt --out file
refused "gpt: --out file/in: cannot make file/in: Not a directory" gpt --out file/in
refused "gpt: --checkpoint file: cannot write there" gpt --checkpoint file --steps 1
refused "gpt: --only mx-1: --checkpoint is needed" gpt --only mx-1
refused "gpt: --until: --checkpoint is needed" gpt --until 5
refused "gpt: --recipe tensor;fat=none: fp8_recipe_from_string: text has unknown field" gpt --recipe "mx,tensor;fat=none"
refused "gpt: --recipe row;w=f16/unquantized;coverage=wgrad: fp8_recipe_from_string: fprop is outside the coverage" \
  gpt --recipe "row;w=f16/unquantized;coverage=wgrad"
plain=f16/unquantized
refused "x and dy are BF16 here, w cannot be f16" gpt --recipe "row;x=$plain;w=$plain;dy=$plain;coverage=none"
refused "gpt: --recipe tensor;fast=none: this recipe is in the list already, as tensor;fast=none" \
  gpt --recipe "tensor;fast=none,mx,tensor;fast=none"
refused "gpt: --recipe current;format=hybrid;fast=none: this recipe is in the list already, as tensor;fast=none" \
  gpt --recipe "tensor;fast=none,current;format=hybrid;fast=none"
refused "gpt: --recipe tensor;format=hybrid: this recipe is in the list already, as tensor" \
  gpt --recipe "tensor;format=hybrid,tensorwise"
refused "gpt: --recipe mx;w=e4m3/32x32: this recipe is in the list already, as mx_w2d" gpt --recipe "mx;w=e4m3/32x32,all"
refused "gpt: --recipe bf16;fast=none: the baseline cannot be changed" gpt --recipe "bf16;fast=none"
refused "gpt_zero1: --recipe tensor;fast=none: names of presets are needed here" gpt_zero1 --recipe "tensor;fast=none"
refused "gpt: --tune maybe: yes or no is needed" gpt --tune maybe
refused "gpt_zero1: --checkpoint no/file: cannot write there: no: No such" gpt_zero1 --checkpoint no/file --recipe mx
refused "gpt_zero1: --losses no/file: cannot write there" gpt_zero1 --losses no/file
refused "gpt_zero1: --losses $PWD: a file is needed" gpt_zero1 --losses "$PWD"
for option in --minutes --seeds --fault --out; do
  refused "gpt_zero1: $option: this is an option of gpt" gpt_zero1 $option 1
  if grep -q -- "$option" gpt_zero1.txt; then echo "gpt_zero1 --help speaks of $option"; exit 1; fi
done
# each option that help lists is one, and help lists no option twice
for program in gpt gpt_zero1 $mlp; do
  for option in $(grep -o -- '^  --[a-z-]*' $program.txt); do
    [ "$(grep -c -- "^  $option " $program.txt)" = 1 ] || { echo "$program --help lists $option twice"; exit 1; }
    if [ "$option" != --help ]; then refused "$program: $option: a value is needed" $program "$option"; fi
  done
done
refused "demo.sh: --bogus: there is no such option" "$demo" --bogus 1
refused "demo.sh: --steps=5: there is no such option" "$demo" --steps=5
refused "demo.sh: --out: a value is needed" "$demo" --steps 5 --out
refused "demo.sh: --device cuda:x: cpu, cuda or cuda:N is needed" "$demo" --device cuda:x
refused "demo.sh: --minutes abc: a number from 0.05 to" "$demo" --minutes abc
refused "demo.sh: --minutes 0.01: a number from 0.05 to" "$demo" --minutes 0.01
refused "demo.sh: --seeds 0: a whole number from 1 to 1000 is needed" "$demo" --steps 5 --seeds 0
refused "demo.sh: --seeds 1.5: a whole number from 1 to 1000 is needed" "$demo" --seeds 1.5
refused "demo.sh: --rate -1: a number from 1e-8 to 1.0 is needed" "$demo" --rate -1
refused "demo.sh: --recipe mxfp4: one of these is needed" "$demo" --recipe mx,mxfp4
refused "demo.sh: --data $PWD/none: this file cannot be read" "$demo" --data "$PWD/none"
# what is right is passed over: the option after it is refused
last=(--bogus 1)
refused "demo.sh: --bogus" "$demo" --minutes .5 --seeds 1000 --seed 9223372036854775807 --rate 1e-3 --threads +2 "${last[@]}"
refused "demo.sh: --data $PWD: this file cannot be read" "$demo" --data "$PWD" "${last[@]}"
refused "demo.sh: --bogus" "$demo" --recipe "ALL,MXFP8,tensor;fast=none,mx_w2d" --data file --tune yes "${last[@]}"
if ! LC_ALL=C LD_PRELOAD=libcuda.so.1 /bin/true 2>&1 | grep -q "libcuda"; then
  echo "a driver is installed: its absence is not tested"
else
  printf '#!/bin/sh\n' >nvcc
  chmod +x nvcc
  CUDA_HOME=$PWD/none PATH=$PWD:$PATH refused "demo.sh: --device cuda: no NVIDIA driver is installed" "$demo" --device cuda
  CUDA_HOME=$PWD/none PATH=/usr/bin:/bin refused "demo.sh: --device cuda: nvcc (CUDA 13) is needed" "$demo" --device cuda
fi
if grep -q "setup:" log; then echo "the demo installs before it looks at its arguments"; exit 1; fi
"$demo" --help >demo.txt
grep -vxFf demo.txt gpt.txt && { echo "the demo's --help lacks these lines of the GPT's"; exit 1; }
echo "all refused as they should"
