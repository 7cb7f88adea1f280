// Package packagetest tests what packaging makes, the way its users meet it: packages are installed, upgraded, removed
// and purged with dpkg and rpm in throw-away copies of this machine's file system (an overlay each, gone with the test's
// namespaces), install.sh runs there, the image's only folder is made and used as a root, and the DaemonSet is applied
// to a real API server.
//
// It uses bin/liqo-agent, bin/packager and bin/man, which make builds. Roots with users of their own take root on the
// machine; without, those tests are left out and say so.
package packagetest
