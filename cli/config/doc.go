// Package config is the commands about the configuration, and the options that
// stand for its keys.
package config
