// Package domains is the commands about DNS search domains, and how they are shown.
package domains
