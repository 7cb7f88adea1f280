#!/bin/bash
# Makes sure that what the tests and the demo need besides Go is there. As root on Debian it installs
# what is missing; otherwise it names the command that would.
set -euo pipefail

# package: a file that is there when it is installed
declare -A need=(
  [avahi-daemon]=/usr/sbin/avahi-daemon
  [avahi-utils]=/usr/bin/avahi-browse
  [bind9]=/usr/sbin/named
  [bind9-dnsutils]=/usr/bin/nsupdate # and dig
  [busybox-static]=/var/lib/dpkg/info/busybox-static.list # /bin/busybox may be the one that needs libc
  [ca-certificates]=/etc/ssl/certs/ca-certificates.crt
  [containerd]=/usr/bin/containerd
  [containernetworking-plugins]=/usr/lib/cni/bridge
  [curl]=/usr/bin/curl
  [dbus-daemon]=/usr/bin/dbus-daemon
  [gcc]=/usr/bin/gcc # for the race detector
  [git]=/usr/bin/git
  [iproute2]=/usr/bin/ss
  [iptables]=/usr/sbin/iptables
  [libc6-dev]=/usr/include/stdio.h
  [nftables]=/usr/sbin/nft
  [rpm]=/usr/bin/rpm # the .rpm is installed with it, into a throw-away root
  [runc]=/usr/sbin/runc
  [systemd]=/usr/bin/systemd-analyze # checks the unit; no machine has to be booted with it
)

missing=()
for package in "${!need[@]}"; do
  [[ -e ${need[$package]} ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort)

install="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "setup: these Debian packages, or what your system calls them, are missing: ${missing[*]}" >&2
  exit 1
fi
if ((EUID != 0)); then
  echo "setup: missing: ${missing[*]}. Install them with: sudo sh -c '$install'" >&2
  exit 1
fi

# The tests run these programs in namespaces of their own. On the machine itself no service may start
# now because its package is installed here (policy-rc.d), nor at the next boot (disable, below).
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null

if command -v systemctl >/dev/null; then
  for package in "${missing[@]}"; do
    case $package in
      avahi-daemon) systemctl --quiet disable avahi-daemon.service avahi-daemon.socket ;;
      bind9) systemctl --quiet disable named.service ;;
      containerd) systemctl --quiet disable containerd.service ;;
      nftables) systemctl --quiet disable nftables.service ;;
    esac
  done
fi
