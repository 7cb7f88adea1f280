package integration

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
)

// held runs a command whose standard input is a file and does not end before the
// command has: its end is not sent.
const held = `dir=$(mktemp -d) && mkfifo $dir/in && exec 3<>$dir/in && { cat /var/lib/input >&3 & } && "$@" <$dir/in 3>&-`

// testInput: input and output arrive whole, little and much. The input ends after the command
// has: a kubelet closes with the last byte of the output, and what its caller says
// after that, such as the end of the input, makes the kernel or the API server of the
// provider throw away what is under way. kubectl, API server and kubelet lose output
// so without the agent, too, and take it for success; see docs/troubleshooting.md.
func testInput(t *testing.T, c *clusters, env []string) {
	text := make([]byte, 1<<20)
	_, _ = rand.Read(text)
	for _, input := range []string{"over there", base64.StdEncoding.EncodeToString(text)} {
		c.consumer.Host.WriteFile("/var/lib/input", input)
		// Not cat: kwok does not pass on the end of the input.
		args := append([]string{"sh", "-c", held, "sh", "env"}, kubectl(env, "exec", "-i", "web", "--", "head", "-c", strconv.Itoa(len(input)))...)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, err := c.consumer.Host.Run(ctx, args...)
		cancel()
		if err != nil || got != input {
			t.Errorf("head of %d bytes: %d bytes, %v", len(input), len(got), err)
		}
	}
}

// late starts kubectl with standard input open, and its output not read. When file
// eof is there, the input goes on and ends; when file go is there, the output is read.
const late = `cd /var/lib && rm -f in eof go && mkfifo in && exec 3<>in
{ "$@" <in 3>&-; echo "status=$?" >&2; } | { while [ ! -e go ]; do sleep 0.05; done; echo "bytes=$(wc -c)"; } 3>&- &
while [ ! -e eof ]; do sleep 0.05; done
for i in 1 2 3; do echo more >&3; sleep 0.1; done
exec 3>&-
wait
echo over`

// testLateInput: input that comes when the command has ended and its output is still
// under way costs the output at the provider, without the agent, too. What is
// promised is that this does not look like success.
func testLateInput(t *testing.T, c *clusters, env []string) {
	const size = 6_000_000
	done := "/var/lib/late-done"
	args := append([]string{"sh", "-c", late, "sh", "env"},
		kubectl(env, "exec", "-i", "web", "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero; touch %s", size, done))...)
	host := c.consumer.Host
	p := host.Start(bed.Cmd{Name: "late", Args: args})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bed.Poll(ctx, func() error {
		_, err := c.provider.Host.Run(ctx, "test", "-e", done)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	host.WriteFile("/var/lib/eof", "")
	host.WriteFile("/var/lib/go", "")
	saw(t, p, "over")
	log := p.Log()
	whole := strings.Contains(log, fmt.Sprintf("bytes=%d\n", size))
	if strings.Contains(log, "status=0\n") && !whole {
		t.Errorf("output that is not whole looks like success: %s", log)
	}
}
