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
compgen -G "$dir/boot/vmlinuz-*" >/dev/null && exit

# One copy serves all clones: it is kept where the user's caches are.
image=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" {print $2; exit}')
[[ -n $image ]] || skip "apt-get knows no package linux-image-cloud-amd64"
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/liqo-agent-vm
mkdir -p bin
if [[ ! -d $cache/$image ]]; then
  work=$(mkdir -p "$cache" && mktemp -d "$cache/.fetching-XXXXXX") || skip "$cache cannot be written"
  trap 'rm -rf "$work"' EXIT
  echo "vm: fetching $image"
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$image") || skip "$image cannot be downloaded"
  mkdir "$work/root"
  dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/root" ./boot ./lib/modules
  # Whole or not at all, also if two clones fetch it at once. What somebody still needs that goes here is fetched again.
  find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
  mv -T "$work/root" "$cache/$image" 2>/dev/null || [[ -d $cache/$image ]]
fi
rm -rf "$dir"
ln -s "$cache/$image" "$dir"
