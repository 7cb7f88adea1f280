// Package service makes liqo-agent a service of systemd: it has the one unit file, which
// packages install too, and installs, removes, starts, stops and describes the service.
//
// It knows systemd only, through systemctl, and nothing about the agent that runs. It changes nothing but the unit in /etc/systemd/system, the links that
// enable it, and the user and group when they are missing; state and configuration are left alone.
//
// Its parts: [liqo.io/agent/service/notify] is how the running agent talks to systemd, and
// [liqo.io/agent/service/journal] how its log gets there.
//
// Goroutines: none.
package service
