# $1: how many versions are installed now. Nothing here needs a running systemd, and a failure would fail the transaction.
if ! getent passwd liqo-agent >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers liqo-agent.conf || :
	fi
	if ! getent passwd liqo-agent >/dev/null; then
		getent group liqo-agent >/dev/null || groupadd --system liqo-agent || :
		useradd --system --gid liqo-agent --no-create-home --home-dir /var/lib/liqo-agent --shell /usr/sbin/nologin liqo-agent || :
	fi
fi
if ! { command -v systemd-tmpfiles >/dev/null && systemd-tmpfiles --create liqo-agent.conf; }; then
	mkdir -p /var/lib/liqo-agent || :
	chown liqo-agent:liqo-agent /var/lib/liqo-agent || :
	chmod 0750 /var/lib/liqo-agent || :
fi
if command -v systemctl >/dev/null; then
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload || :
	fi
	# Enabled where the distribution's presets say so, and never started: whoever installs an .rpm does that.
	if [ "$1" -eq 1 ]; then
		systemctl --no-reload preset liqo-agent.service || :
	fi
fi
exit 0
