package netpol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

const (
	node   = "box"
	inside = "NETPOL_INSIDE"
	// queueFile is where the kernel says which queues of packets are listened to.
	queueFile = "/proc/net/netfilter/nfnetlink_queue"
	// hang bounds a test that hangs, and measures nothing.
	hang = 5 * time.Minute
)

// TestMain runs the tests in a network of their own.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		klog.LogToStderr(false) // it says again and again that it has no nftables
		klog.SetOutput(io.Discard)
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "netpol: no network of its own:", err)
		os.Exit(1)
	}
}

// objects are what an API server has.
type objects struct {
	namespaces []corev1.Namespace
	pods       []corev1.Pod
	policies   []networkingv1.NetworkPolicy
}

// serve answers lists, and lets watches wait until done.
func (o objects) serve(done <-chan struct{}) http.HandlerFunc {
	lists := map[string]any{
		"/api/v1/namespaces": corev1.NamespaceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: o.namespaces},
		"/api/v1/pods":       corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: o.pods},
		"/apis/networking.k8s.io/v1/networkpolicies": networkingv1.NetworkPolicyList{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicyList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: o.policies,
		},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list, known := lists[r.URL.Path]
		switch {
		case !known:
			http.NotFound(w, r)
		case r.URL.Query().Get("sendInitialEvents") != "":
			// A list is to be a list.
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			select {
			case <-done:
			case <-r.Context().Done():
			}
		default:
			_ = json.NewEncoder(w).Encode(list) // the client notices
		}
	}
}

// lan is a network in which every address is this machine's own. Each packet that
// begins something passes the engine between its sender and its receiver.
type lan struct {
	queue int
	begun float64            // verdicts before this engine's first
	seen  map[string]float64 // verdicts before the present attempt
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func network(t *testing.T, addresses []string) *lan {
	t.Helper()
	if _, err := os.ReadFile(queueFile); errors.Is(err, fs.ErrPermission) {
		t.Skipf("only root may read %s, by which it is known that the engine listens", queueFile)
	}
	run(t, "ip", "link", "set", "lo", "up")
	for _, a := range addresses {
		bits := "/32"
		if strings.Contains(a, ":") {
			bits = "/128"
		}
		run(t, "ip", "address", "replace", a+bits, "dev", "lo")
	}
	return &lan{queue: 100}
}

// enforce has an engine go by what an API server has until the test ends.
//
// The engine leads the packets of its own node's pods to itself by nftables, for which not
// every kernel has what it takes. It gets them by iptables here, and believes to be on
// another node so that it gets none twice.
func (l *lan) enforce(t *testing.T, o objects) {
	t.Helper()
	l.queue++
	t.Setenv("NRI_PLUGIN_SOCKET", "none") // else it asks the machine's containerd for pods
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(nil)
	server.Config.Handler = o.serve(ctx.Done())
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	engine, err := networkpolicy.NewController(client, factory.Networking().V1().NetworkPolicies(), factory.Core().V1().Namespaces(), factory.Core().V1().Pods(),
		nil, nil, nil, nil, networkpolicy.Config{NodeName: "not-" + node, QueueID: l.queue})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	factory.Start(ctx.Done())
	go func() { ended <- engine.Run(ctx) }()
	// What the engine itself has to say to its API server is none of the attempts.
	rule := func(program, loopback, action string) {
		run(t, program, "-w", action, "OUTPUT", "!", "-d", loopback, "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", fmt.Sprint(l.queue))
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
		server.Close()
	})
	l.within(t, "the engine to listen", func() bool {
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("the engine ended: %v", err)
		default:
		}
		_, listens := l.queued(t)
		return listens
	})
	l.begun = total(verdicts(t))
	for program, loopback := range map[string]string{"iptables": "127.0.0.0/8", "ip6tables": "::1/128"} {
		rule(program, loopback, "-A")
		t.Cleanup(func() { rule(program, loopback, "-D") })
	}
}

// queued returns how many packets were led to the engine, if it listens.
func (l *lan) queued(t *testing.T) (packets float64, listens bool) {
	t.Helper()
	const number, sequence = 0, 7 // proc_pid_net(5)
	queues, err := os.ReadFile(queueFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false // the kernel makes it for the first who listens
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(queues)) {
		if fields := strings.Fields(line); len(fields) > sequence && fields[number] == fmt.Sprint(l.queue) {
			packets, err := strconv.ParseFloat(fields[sequence], 64)
			if err != nil {
				t.Fatal(err)
			}
			return packets, true
		}
	}
	return 0, false
}

// within waits until something is so.
func (l *lan) within(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !so(); {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s took too long", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// verdicts returns how many packets the engine has accepted and dropped so far.
func verdicts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "kube_network_policies_packet_count" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "verdict" {
					out[label.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func total(verdicts map[string]float64) (sum float64) {
	for _, n := range verdicts {
		sum += n
	}
	return sum
}

// settle waits until the engine has nothing left to decide about: what begins a
// connection, and was dropped, is sent again.
func (l *lan) settle(t *testing.T) {
	t.Helper()
	l.within(t, "the engine to decide", func() bool {
		packets, _ := l.queued(t)
		l.seen = verdicts(t)
		return total(l.seen)-l.begun == packets
	})
}

// verdict waits for that of the engine on the packet that was just sent.
func (l *lan) verdict(t *testing.T) string {
	t.Helper()
	var out string
	l.within(t, "a verdict", func() bool {
		now := verdicts(t)
		for _, v := range []string{"accept", "drop"} {
			if now[v] > l.seen[v] {
				out = v
				return true
			}
		}
		return false
	})
	return out
}

// send sends something and says what came of it.
func (l *lan) send(t *testing.T, protocol string, from netip.Addr, to netip.AddrPort) string {
	t.Helper()
	send := l.connect
	if protocol == "udp" {
		send = l.datagram
	}
	l.settle(t)
	verdict, arrived := send(t, from, to)
	switch {
	case verdict == "accept" && arrived:
		return through
	case verdict == "drop" && !arrived:
		return held
	}
	return fmt.Sprintf("%s, and arrived is %v", verdict, arrived)
}

func (l *lan) datagram(t *testing.T, from netip.Addr, to netip.AddrPort) (verdict string, arrived bool) {
	t.Helper()
	receiver, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	if _, err := sender.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	verdict = l.verdict(t)
	deadline := time.Now() // what was dropped is gone by now
	if verdict == "accept" {
		deadline = deadline.Add(hang)
	}
	if err := receiver.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	_, source, err := receiver.ReadFromUDPAddrPort(make([]byte, 16))
	return verdict, err == nil && source.Addr().Unmap() == from
}

func (l *lan) connect(t *testing.T, from netip.Addr, to netip.AddrPort) (verdict string, arrived bool) {
	t.Helper()
	receiver, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	connected := make(chan error, 1)
	go func() {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err := dialer.DialContext(ctx, "tcp", to.String())
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	verdict = l.verdict(t)
	if verdict == "drop" {
		cancel()
	}
	return verdict, <-connected == nil
}
