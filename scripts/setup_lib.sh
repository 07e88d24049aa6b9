# SPDX-License-Identifier: Apache-2.0
# The steps of scripts/setup.sh; sourced, not run.
required=() optional=() reasons=() skipped=() found=()
apt_options=(-o DPkg::Lock::Timeout=300 -q)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: ERROR: %s\n' "$*" >&2; exit 1; }
skip() { skipped+=("$1"); }
need() { required+=("$@"); }
want() { optional+=("${1%%:*}"); reasons+=("${1#*: }"); }

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# Sets `root` to the words that run a command as root, or fails with what to do.
become_root() {
  [ -z "${root_known:-}" ] || return 0
  command -v apt-get >/dev/null || die "apt-get is missing: this script knows Debian 12 (and its kin). Install by hand: $*"
  if [ "$(id -u)" = 0 ]; then
    root=()
  elif command -v sudo >/dev/null; then
    sudo -n true 2>/dev/null || say "sudo may ask for your password, to install: $*"
    root=(sudo)
  else
    die "run this as root, or install sudo: these packages are missing: $*"
  fi
  root_known=1
}

apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" "$@"; }

install_packages() {
  local missing=() p i
  for p in "${required[@]}" "${optional[@]}"; do installed "$p" || missing+=("$p"); done
  if [ ${#missing[@]} -gt 0 ]; then
    become_root "${missing[@]}"
    say "installing: ${missing[*]}"
    apt update || say "apt-get update failed; trying with the lists at hand"
    if ! apt install -y --no-install-recommends "${missing[@]}"; then
      for p in "${missing[@]}"; do apt install -y --no-install-recommends "$p" || true; done
    fi
  fi
  for p in "${required[@]}"; do installed "$p" || die "the package $p could not be installed, and nothing works without it"; done
  for i in "${!optional[@]}"; do
    installed "${optional[i]}" || skip "${optional[i]} could not be installed; skipped: ${reasons[i]}"
  done
}

# install_venv all|demo: .dev/venv holds requirements.txt, or of it what the demo needs. A stamp remembers which, so that
# an unchanged list costs nothing.
install_venv() {
  local venv=.dev/venv list stamp line
  list=$(grep -v '^#' scripts/requirements.txt)
  stamp="$(sha256sum scripts/requirements.txt | cut -d' ' -f1) $PWD"
  if [ "$(cat $venv/stamp 2>/dev/null)" = "$stamp" ]; then return 0; fi
  if [ "$1" = demo ]; then
    list=$(grep '^matplotlib' scripts/requirements.txt)
    if [ "$(cat $venv/stamp-demo 2>/dev/null)" = "$stamp" ]; then return 0; fi
  fi
  say "installing Python packages into $venv:" $list
  if [ "$(cut -d' ' -f2- $venv/stamp* 2>/dev/null | sort -u)" != "$PWD" ]; then rm -rf $venv; fi
  [ -x $venv/bin/python ] || /usr/bin/python3 -m venv $venv
  mapfile -t list <<<"$list"
  if pip_install "${list[@]}"; then
    if [ "$1" = demo ]; then echo "$stamp" >$venv/stamp-demo; else echo "$stamp" >$venv/stamp; fi
    return 0
  fi
  # One missing package must not take the others with it.
  for line in "${list[@]}"; do
    pip_install "$line" ||
      skip "Python package $line could not be installed; what uses it (pictures, Python binding, JAX) is skipped"
  done
}

# Says what it fetches: some of it is large.
pip_install() { .dev/venv/bin/python -m pip install --disable-pip-version-check "$@"; }

# Debian 12 has no Julia. Debian 11's runs on it, but an exception that crosses compiled code crashes with Debian 12's
# libunwind; a private copy of Debian 11's beside libjulia cures that and touches nothing else. The pin keeps every
# other package of Debian 11 out.
julia_packages="julia julia-common libjulia1 libdsfmt-19937-1 libffi7 libgit2-1.1 libhttp-parser2.9 libllvm9"
julia_packages+=" libmbedcrypto3 libmbedtls12 libmbedx509-0 libopenlibm3"
julia_libdir=/usr/lib/x86_64-linux-gnu/julia

julia_works() {
  timeout 60 julia --startup-file=no -e '@noinline f(x) = x > 0 ? throw(ArgumentError("x")) : x
    try f(1) catch e; e isa ArgumentError || exit(1) end' >/dev/null 2>&1
}

install_julia() {
  if command -v julia >/dev/null && { ! installed julia || [ -e $julia_libdir/libunwind.so.8 ]; }; then
    julia_works || skip "julia is installed but fails at exceptions; the Julia binding's tests are skipped"
    return 0
  fi
  local why="the Julia binding's tests are skipped"
  if [ "$(dpkg --print-architecture)" != amd64 ]; then skip "julia: only packaged here for amd64; $why"; return 0; fi
  become_root julia
  install_julia_packages || { remove_julia_source; skip "julia could not be installed; $why"; return 0; }
  julia_works || skip "julia was installed but fails at exceptions; $why"
}

install_julia_packages() {
  local mirror tmp
  mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
  [ -n "$mirror" ] || mirror=$(awk '$1 == "deb" && /debian/ {for (i = 2; i <= NF; i++) if ($i ~ /^[a-z]+:\/\//) {print $i; exit}}' \
    /etc/apt/sources.list 2>/dev/null)
  [ -n "$mirror" ] || { say "no Debian mirror found in apt's sources"; return 1; }
  printf 'Types: deb\nURIs: %s\nSuites: bullseye\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' \
    "$mirror" /usr/share/keyrings/debian-archive-keyring.gpg | "${root[@]}" tee /etc/apt/sources.list.d/bullseye-julia.sources >/dev/null
  printf 'Package: *\nPin: release n=bullseye\nPin-Priority: -10\n\nPackage: %s\nPin: release n=bullseye\nPin-Priority: 100\n' \
    "$julia_packages" | "${root[@]}" tee /etc/apt/preferences.d/bullseye-julia >/dev/null
  apt update || return 1
  apt install -y --no-install-recommends julia || return 1
  tmp=$(mktemp -d)
  chmod 755 "$tmp"
  (cd "$tmp" && apt-get -q download libunwind8/bullseye && dpkg-deb -x libunwind8_*.deb x) || { rm -rf "$tmp"; return 1; }
  "${root[@]}" install -m 644 "$tmp"/x/usr/lib/x86_64-linux-gnu/libunwind.so.8.*.* $julia_libdir/libunwind.so.8
  rm -rf "$tmp"
}

# A source that cannot be read would break every later apt-get update.
remove_julia_source() {
  "${root[@]}" rm -f /etc/apt/sources.list.d/bullseye-julia.sources /etc/apt/preferences.d/bullseye-julia
}

# note_tool NAME WHAT-IS-SKIPPED [USUAL-PLACE]
note_tool() {
  local path
  path=$(command -v "$1" || { [ -x "${3:-}" ] && echo "$3"; } || true)
  if [ -n "$path" ]; then found+=("$1 ($path)"); else skip "$1 is not installed (this script never installs it); $2"; fi
}

report() {
  local names=""
  mkdir -p .dev
  {
    if [ ${#found[@]} -gt 0 ]; then printf -v names ', %s' "${found[@]}"; fi
    say "ready.${names:+ Used as found: ${names#, }}"
    if [ ${#skipped[@]} -gt 0 ]; then
      say "================ NOT AVAILABLE HERE, AND SKIPPED ================"
      printf 'setup:   * %s\n' "${skipped[@]}"
      say "================================================================="
    fi
  } | tee .dev/setup-report.txt
}
