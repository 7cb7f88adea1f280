//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"liqo.io/agent/internal/bed"
)

const (
	// answerPort is where the pods of all boxes answer.
	answerPort = 7777
	// unansweredFor is how long an address may be ready and not answer. A path counts as down 6 s after the last packet, and pods are
	// not ready 3 s after a connection was lost, or 10 s after the agent started; the rest is for the API server, which has to be told,
	// and for what else the machine does.
	unansweredFor = 20 * time.Second
	// deniedAfter is how long after a pod has gone what it was granted may be granted still.
	deniedAfter = 10 * time.Second
	// unusedAddress is the last part of addresses that no pod of a box ever has: kwok begins with the lowest.
	unusedAddress = 240
)

// packets are those that pods send. All pods of a box are one network, and answer whether they exist or not: who is asked, and as who,
// is up to what the API servers say.
type packets struct {
	c       *chaos
	pods    []*bed.Pods
	servers []net.PacketConn

	mu        sync.Mutex
	questions map[string]*question // by their number
	sights    []sight              // the last of each box
	known     []map[held]time.Duration
	targets   []map[target]time.Time // of each box, and since when each could have answered
	suspects  []arrival
	found     []string // what is wrong
	pending   string   // faults
	watching  bool
	answers   int
	longest   time.Duration

	stop func() // ends what watch began
}

// sight is what a box says about itself.
type sight struct {
	began   time.Time
	ok      bool // its API server and its agent answer
	agent   time.Time
	running time.Duration // how long it was ok, altogether
	pods    []corev1.Pod
	slices  []discoveryv1.EndpointSlice
	blocks  []netip.Prefix // in which it knows the pods of each box
}

// held is an address of a box that a pod of a consumer has: one at home in namespace shop, or a guest.
type held struct {
	owner int
	addr  netip.Addr
}

// target is an address that is ready at a consumer.
type target struct {
	addr netip.Addr
	pod  string // its UID
}

// question is a packet from an address of one box's pods to one that leads to another box.
type question struct {
	from, at int
	src, dst netip.Addr
	pod      string        // its UID, if a consumer has that; not for attempts
	answered chan struct{} // closed when there is an answer
	answer   *arrival
}

// arrival is an answer: who was asked, and by whom.
type arrival struct {
	*question
	when        time.Time
	box         int
	asked, seen netip.Addr
	running     []time.Duration // of each box, then
}

// newPackets has the pods of all boxes answer.
func newPackets(c *chaos) *packets {
	n := len(c.boxes)
	p := &packets{c: c, questions: make(map[string]*question), sights: make([]sight, n), servers: make([]net.PacketConn, n)}
	for i, x := range c.boxes {
		p.pods = append(p.pods, x.host.AddPods())
		p.known, p.targets = append(p.known, make(map[held]time.Duration)), append(p.targets, make(map[target]time.Time))
		p.serve(i)
		p.accept(i)
		c.t.Cleanup(func() { _ = p.servers[i].Close() })
	}
	return p
}

// listen returns a socket of a box's pods that says and chooses which of them it is.
func (p *packets) listen(i, port int) (*ipv4.PacketConn, net.PacketConn, error) {
	var l net.PacketConn
	if err := p.pods[i].Do(func() (err error) { l, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", port)); return err }); err != nil {
		return nil, nil, err
	}
	conn := ipv4.NewPacketConn(l)
	return conn, l, conn.SetControlMessage(ipv4.FlagDst, true)
}

// serve answers each question with the box, the address that was asked, and who asked.
func (p *packets) serve(i int) {
	conn, server, err := p.listen(i, answerPort)
	p.c.check(err)
	p.servers[i] = server
	go func() {
		buffer := make([]byte, 200)
		for {
			n, control, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				answer := fmt.Sprintf("%s %d %s %s", buffer[:n], i, control.Dst, from.(*net.UDPAddr).IP)
				_, _ = conn.WriteTo([]byte(answer), &ipv4.ControlMessage{Src: control.Dst}, from)
			}
		}
	}()
}

// ask sends questions of one box. Their answers count as long as an address may fail to answer.
func (p *packets) ask(questions []*question) {
	if len(questions) == 0 {
		return
	}
	conn, _, err := p.listen(questions[0].from, 0)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong("%v", err)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(unansweredFor)) // of an open socket
	p.mu.Lock()
	numbers := make([]string, len(questions))
	for k, q := range questions {
		numbers[k] = fmt.Sprint(rand.Uint64())
		q.answered = make(chan struct{})
		p.questions[numbers[k]] = q
	}
	p.mu.Unlock()
	go func() {
		defer conn.Close()
		buffer := make([]byte, 200)
		for {
			n, _, from, err := conn.ReadFrom(buffer)
			if err != nil && !errors.Is(err, net.ErrClosed) && !isTimeout(err) {
				continue // an ICMP error
			}
			if err != nil {
				break
			}
			p.take(string(buffer[:n]), from.(*net.UDPAddr).AddrPort().Addr().Unmap())
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, number := range numbers {
			delete(p.questions, number)
		}
	}()
	for k, q := range questions {
		// There may be no route now.
		_, _ = conn.WriteTo([]byte(numbers[k]), &ipv4.ControlMessage{Src: q.src.AsSlice()}, &net.UDPAddr{IP: q.dst.AsSlice(), Port: answerPort})
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// take takes an answer.
func (p *packets) take(text string, from netip.Addr) {
	var number, asked, seen string
	a := arrival{when: time.Now()}
	_, err := fmt.Sscan(text, &number, &a.box, &asked, &seen)
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.question = p.questions[number]; err != nil || a.question == nil || from != a.dst || a.answer != nil {
		return
	}
	a.asked, a.seen = netip.MustParseAddr(asked), netip.MustParseAddr(seen)
	for _, s := range p.sights {
		a.running = append(a.running, s.running)
	}
	a.answer = &a
	close(a.answered)
	p.answers++
	p.suspects = append(p.suspects, a)
	for t := range p.targets[a.question.from] {
		if t.addr == a.dst {
			p.longest = max(p.longest, a.when.Sub(p.targets[a.question.from][t]))
			p.targets[a.question.from][t] = a.when
		}
	}
}

// look asks a box for its pods, the endpoints of Services, and the addresses by which it knows pods of others.
func (p *packets) look(ctx context.Context, i int) sight {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	x, s := p.c.boxes[i], sight{began: time.Now(), blocks: make([]netip.Prefix, len(p.c.boxes))}
	st, err := x.asks.Status(ctx)
	networks, err2 := x.asks.Network(ctx)
	var pods corev1.PodList
	var endpoints discoveryv1.EndpointSliceList
	read := func(path string, into any) error {
		text, err := x.kube.Request(ctx, "GET", path, "", nil)
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		return err
	}
	err = errors.Join(err, err2, read("/api/v1/pods", &pods), read("/apis/discovery.k8s.io/v1/endpointslices", &endpoints))
	s.ok, s.agent, s.pods, s.slices = err == nil && st.Kubernetes.Connected, st.StartedAt, pods.Items, endpoints.Items
	for _, n := range networks.Peers {
		for j, id := range p.c.ids {
			if n.ID == id && len(n.Theirs) > 0 {
				s.blocks[j], _ = netip.ParsePrefix(n.Theirs[0]) // none is not valid
			}
		}
	}
	return s
}
