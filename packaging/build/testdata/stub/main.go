// Command stub stands for a binary of another architecture where tests only look at packages.
package main

func main() {}
