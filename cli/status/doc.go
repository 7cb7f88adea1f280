// Package status is the commands that show how the agent and its peerings are:
// status and info.
package status
