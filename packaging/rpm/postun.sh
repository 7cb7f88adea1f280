# $1: how many versions are left. 1 or more: this was the old one of an upgrade.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -ge 1 ]; then
		systemctl try-restart liqo-agent.service || :
	fi
fi
exit 0
