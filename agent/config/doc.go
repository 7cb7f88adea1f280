// Package config turns the TOML file, the environment and the command line
// into one validated value.
//
// One table (table.go) says everything about every key: its name, default,
// rule, meaning, and whether it takes effect without a restart. Loading,
// environment variables, --set, config show, liqo-agent.toml.example and
// docs/configuration.md all follow from it.
//
// A Config is a value: it is loaded as a whole, never changed afterwards, and
// replaced as a whole on reload. The package reads one file, decides nothing
// about what the values are used for, keeps no state and starts no goroutine.
package config
