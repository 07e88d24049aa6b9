# SPDX-License-Identifier: Apache-2.0
# What scripts/demo.sh can tell of the GPT's options before the GPT is built; sourced, not run. Names, bounds and help are read
# from the GPT's sources, so that there is no second list of them. What passes here, the GPT checks again.
options=examples/c/gpt/options.c

bad() { printf 'demo.sh: %s (see --help)\n' "$1" >&2; exit 2; }

gpt_help() { sed -n 's/^ *"\(.*\)\\n";\{0,1\}$/\1/p' $options; }

gpt_has() { grep -qF -e "option_is(\"$1\"," $options; }

# check_number NAME VALUE: nothing, where the option takes no number
check_number() {
  local kind least most form what="a number"
  read -r kind least most < <(grep -F -A 1 -e "option_is(\"$1\"," $options |
    sed -n 's/.*option_\(integer\|real\)(name, value, \([^,]*\), \([^)]*\)).*/\1 \2 \3/p') || return 0
  form='^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$'
  if [ "$kind" = integer ]; then form='^[+]?[0-9]+$' what="a whole number"; fi
  [ "$most" != INT64_MAX ] || most=9223372036854775807
  if ! [[ $2 =~ $form ]] || ! awk -v x="$2" -v least="$least" -v most="$most" \
    'BEGIN { exit !(x + 0 >= least + 0 && x + 0 <= most + 0) }'; then
    bad "$1 $2: $what from $least to $most is needed"
  fi
}

# check_recipes LIST: names of presets; an item with fields, after a ;, is left to the GPT
check_recipes() {
  local item known items
  known=" all $(sed -n '/DELAYED/d; s/^ *{"\(.*\)", FP8_PRESET_.*/\1/p' src/core/recipe_text.cpp | tr '\n' ' ')"
  IFS=, read -ra items <<<"${1,,}"
  for item in "${items[@]}"; do
    [[ $item == *\;* || $known == *" $item "* ]] ||
      bad "--recipe $item: one of these is needed, or a text of docs/recipes.md:${known% }"
  done
}

# loads LIBRARY: whether the loader finds it, by its own rules
loads() { ! LC_ALL=C LD_PRELOAD=$1 /bin/true 2>&1 | grep -qF "'$1'"; }
