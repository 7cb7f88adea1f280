# $1: how many versions will be left. 0: removed.
if [ "$1" -eq 0 ] && command -v systemctl >/dev/null; then
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now liqo-agent.service || :
		# The network with other clusters outlives the agent, so that an upgrade keeps connections. Mostly there is none.
		ip link delete liqo0-wg 2>/dev/null || :
		ip link delete liqo0 2>/dev/null || :
		nft delete table ip liqo 2>/dev/null || :
		nft delete table ip6 liqo 2>/dev/null || :
	else
		systemctl --no-reload disable liqo-agent.service || :
	fi
fi
exit 0
