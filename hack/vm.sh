#!/bin/bash
# Makes sure that there is what tests in a virtual machine need: QEMU, and in bin/vm a kernel of Debian's with its modules,
# which is unpacked and not installed. Where these cannot be had, it says why, and the tests are skipped.
set -euo pipefail

dir=bin/vm
skip() {
  echo "vm: no tests in a virtual machine: $1" >&2
  exit 0
}

[[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]] || skip "this is not Debian on amd64"
if ! command -v qemu-system-x86_64 >/dev/null; then
  install="apt-get install --no-install-recommends qemu-system-x86"
  ((EUID == 0)) || skip "install QEMU with: sudo $install"
  echo "vm: installing qemu-system-x86"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get -qq update && $install -qq --yes >/dev/null; } || skip "$install has failed"
fi
# kernel DIR: there is one.
kernel() { compgen -G "$1/boot/vmlinuz-*" >/dev/null; }
touch -c "$dir" 2>/dev/null || true # in use
kernel "$dir" && exit

# One copy serves all clones: it is kept where the user's caches are, which may be emptied.
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
[[ -n $cache ]] || skip "neither HOME nor XDG_CACHE_HOME is set"
cache=$cache/liqo-agent-vm
image=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" {print $2; exit}')
[[ -n $image ]] || skip "apt-get knows no package linux-image-cloud-amd64"
mkdir -p bin
if ! kernel "$cache/$image"; then
  work=$(mkdir -p "$cache" && mktemp -d "$cache/.fetching-XXXXXX") || skip "$cache cannot be written"
  trap 'rm -rf "$work"' EXIT
  echo "vm: fetching $image"
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$image") || skip "$image cannot be downloaded"
  mkdir "$work/root"
  dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/root" ./boot ./lib/modules || skip "$image cannot be unpacked"
  # Whole or not at all, also if two clones fetch it at once.
  kernel "$cache/$image" || rm -rf "${cache:?}/$image"
  mv -T "$work/root" "$cache/$image" 2>/dev/null || kernel "$cache/$image" || skip "$cache/$image cannot be written"
  # Those that no clone was given for a month.
  find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null || true
fi
touch -c "$cache/$image" 2>/dev/null || true
rm -rf "$dir"
ln -sT "$cache/$image" "$dir" 2>/dev/null || kernel "$dir"
