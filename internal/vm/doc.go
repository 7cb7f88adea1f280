// Package vm runs tests in a virtual machine with a kernel of Debian's, for what the
// kernel of the machine that runs the tests may not have.
//
//	func TestMain(m *testing.M) { vm.Enter(); bed.Main(m) }
//
//	func TestInVM(t *testing.T) { vm.Run(t, "^TestWireGuard$", vm.Config{Modules: []string{"wireguard"}}) }
//
//	func TestWireGuard(t *testing.T) { vm.Inside(t); ... }
//
// The machine has the program that runs the tests, which has to be static, as its first
// process, busybox and the modules that were named, and nothing else: no disk and no
// network card. It ends with the tests, and with the program that started it.
//
// hack/vm.sh fetches the kernel. Without it, or without QEMU, the tests are skipped.
package vm
