#!/bin/sh
# Installs liqo-agent where there is no .deb or .rpm for it: checks the checksum, installs the one binary, and has it
# install its service. No address is built in; what to install from is said by whoever calls it.
set -eu

usage() {
	cat <<'EOF'
usage: install.sh [--from DIR|URL] [--sha256 SUM] [--no-service]
       install.sh --uninstall | --purge

Installs liqo-agent to /usr/local/bin, and its systemd service.

  --from DIR|URL  where liqo-agent-linux-ARCH and SHA256SUMS are (default: the directory of this script)
  --sha256 SUM    the SHA-256 that the binary must have, as you know it from elsewhere
  --no-service    install the binary only
  --uninstall     remove service and binary; configuration and state stay
  --purge         remove configuration and state, too: the cluster's key, and with it its identity, is lost
EOF
}

fail() {
	echo "install.sh: $1" >&2
	if [ $# -gt 1 ]; then
		echo "  try: $2" >&2
	fi
	exit 1
}

binary=/usr/local/bin/liqo-agent
from=
sum=
service=yes
action=install
while [ $# -gt 0 ]; do
	case $1 in
	--from | --sha256)
		[ $# -gt 1 ] || fail "$1 needs a value" "install.sh --help"
		if [ "$1" = --from ]; then from=$2; else sum=$2; fi
		shift
		;;
	--from=*) from=${1#*=} ;;
	--sha256=*) sum=${1#*=} ;;
	--no-service) service=no ;;
	--uninstall) action=uninstall ;;
	--purge) action=purge ;;
	-h | --help)
		usage
		exit 0
		;;
	*) fail "there is no option $1" "install.sh --help" ;;
	esac
	shift
done

[ "$(id -u)" = 0 ] || fail "this needs root" "sudo sh install.sh"

# With one of these there are two agents, and the package's own scripts.
packaged() {
	if command -v dpkg-query >/dev/null && dpkg-query -W -f '${db:Status-Status}' liqo-agent 2>/dev/null | grep -qx installed; then
		return 0
	fi
	command -v rpm >/dev/null && rpm -q liqo-agent >/dev/null 2>&1
}

if [ "$action" != install ]; then
	if packaged; then
		fail "liqo-agent was installed as a package" "apt purge liqo-agent, or dnf remove liqo-agent"
	fi
	unit=/etc/systemd/system/liqo-agent.service
	if [ -x "$binary" ] && [ -e "$unit" ] && [ -d /run/systemd/system ]; then
		"$binary" service uninstall
	fi
	# Where systemd does not run now, or the binary went first.
	rm -f "$unit" "$unit.old" /etc/systemd/system/multi-user.target.wants/liqo-agent.service "$binary"
	if [ "$action" = purge ]; then
		rm -rf /var/lib/liqo-agent
		rm -f /etc/liqo-agent/liqo-agent.toml /etc/liqo-agent/kubeconfig
		if [ -d /etc/liqo-agent ] && ! rmdir /etc/liqo-agent 2>/dev/null; then
			echo "install.sh: /etc/liqo-agent has other files and stays" >&2
		fi
		echo "liqo-agent, its configuration and its state are gone. The user liqo-agent stays."
	else
		echo "liqo-agent is removed. /etc/liqo-agent and /var/lib/liqo-agent stay; --purge removes them."
	fi
	exit 0
fi

packaged && fail "liqo-agent is installed as a package already" "upgrade that package, or remove it first"

case $(uname -s) in
Linux) ;;
*) fail "this is $(uname -s), and the agent runs on Linux" ;;
esac
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
armv7* | armv8l) arch=armv7 ;;
*) fail "there is no build for $(uname -m); there are amd64, arm64 and armv7" ;;
esac
name=liqo-agent-linux-$arch

if [ -z "$from" ]; then
	from=$(dirname "$0")
	[ -e "$from/SHA256SUMS" ] || fail "no SHA256SUMS in $from" "install.sh --from DIR-or-URL"
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME gets a file from where --from says.
fetch() {
	case $from in
	https://* | http://*)
		if command -v curl >/dev/null; then
			curl --fail --silent --show-error --location --output "$tmp/$1" "${from%/}/$1" || fail "cannot fetch ${from%/}/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$tmp/$1" "${from%/}/$1" || fail "cannot fetch ${from%/}/$1"
		else
			fail "neither curl nor wget is here" "fetch $name and SHA256SUMS yourself, then install.sh --from DIR"
		fi
		;;
	*)
		[ -f "$from/$1" ] || fail "there is no $from/$1" "install.sh --from DIR-or-URL"
		cp "$from/$1" "$tmp/$1"
		;;
	esac
}

case $from in
http://*)
	# Whoever can change the binary on the way can change SHA256SUMS as well.
	[ -n "$sum" ] || fail "http:// proves nothing about what arrives" "use https://, or say --sha256 SUM"
	;;
esac
fetch "$name"
if [ -z "$sum" ]; then
	fetch SHA256SUMS
	sum=$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1 }' "$tmp/SHA256SUMS")
	[ -n "$sum" ] || fail "SHA256SUMS does not list $name"
fi
command -v sha256sum >/dev/null || fail "sha256sum is not here, so the binary cannot be checked"
echo "$sum  $tmp/$name" | sha256sum -c - >/dev/null 2>&1 ||
	fail "$name does not have the checksum $sum; nothing was installed" "fetch it again"

chmod 755 "$tmp/$name"
version=$("$tmp/$name" version) || fail "$name does not run on this machine; nothing was installed"

# Never half a binary, also where the old one runs.
mkdir -p "$(dirname "$binary")"
cp "$tmp/$name" "$binary.new"
chown 0:0 "$binary.new"
mv -f "$binary.new" "$binary"
echo "installed $binary: $version"

if [ "$service" = yes ]; then
	if [ -d /run/systemd/system ]; then
		"$binary" service install
		# A new binary under a service that runs already.
		systemctl try-restart liqo-agent.service
	else
		echo "systemd does not run here. Once it does: sudo liqo-agent service install. With another init, have that"
		echo "run \"liqo-agent run\" at boot, as root."
	fi
fi

cat <<'EOF'

What to do next:
  sudo liqo-agent service start       unless it runs already
  sudo liqo-agent status              how it is doing
  sudo liqo-agent peers list          who else is here
  sudo liqo-agent peers connect NAME  peer with one of them
Settings are in /etc/liqo-agent/liqo-agent.toml; none is needed.
EOF
