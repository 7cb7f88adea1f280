// Command bench measures the built liqo-agent on the test bed and prints a
// table: what was wanted, what was measured, and how. It asserts no figure: the
// machines it runs on are shared. It fails when a pod is lost or runs twice. It
// measures other implementations beside the agent where that says more than a
// number alone.
package main
