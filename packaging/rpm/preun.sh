# $1: how many versions will be left. 0: removed.
if [ "$1" -eq 0 ] && command -v systemctl >/dev/null; then
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now liqo-agent.service || :
	else
		systemctl --no-reload disable liqo-agent.service || :
	fi
fi
exit 0
