// Command progress runs one command of go, or several tests side by side, and says on standard error how far it is: how many
// packages are compiled and about how long the rest takes, or how many packages are tested.
//
//	progress -what "the agent" -C dir go build -o bin/agent .
//	progress -what tests go test ./a -- CGO_ENABLED=1 go test -race ./b
//
// On a terminal it keeps one line up to date; elsewhere it writes a plain line now and then, and
// none for what takes only seconds. The command's own output and exit code are passed on. It knows
// nothing of what is built, and changes nothing about how. With -fetch, it uses the network while
// the processors are busy. With -keep, the program stays in the build cache as those of go run do,
// so other clones need not link it again.
package main
