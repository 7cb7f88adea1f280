// Command record runs a program in a terminal of its own, keeps what it prints and
// when, and draws it:
//
//	record [-cast FILE] [-svg FILE] PROGRAM [ARGUMENT...]
//	record -from CAST -svg FILE
//
// The cast is in the format of asciinema, version 2
// (https://docs.asciinema.org/manual/asciicast/v2/), with long waits cut short. The
// picture is one SVG with the whole text in it, which an animation in CSS scrolls
// past slowly enough to be read; where nothing is animated it shows one screen.
//
// `make record` records the demo for the README. A program that fails is not
// recorded, and neither is one that prints where or on what machine it runs.
//
// It must not change what was printed. It uses one goroutine, besides that which
// package os/exec has for a program.
package main
