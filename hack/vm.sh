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

image=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" {print $2; exit}')
[[ -n $image ]] || skip "apt-get knows no package linux-image-cloud-amd64"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "vm: fetching $image"
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$image") || skip "$image cannot be downloaded"
mkdir "$work/root"
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/root" ./boot ./lib/modules
rm -rf "$dir"
mkdir -p "$dir"
mv "$work/root/lib" "$work/root/boot" "$dir/"
