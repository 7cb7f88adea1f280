package kube

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/client-go/rest"
)

// deadlines is a transport that fails, and notes how long it may take.
type deadlines struct{ given time.Duration }

func (d *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	end, _ := r.Context().Deadline()
	d.given = time.Until(end)
	return nil, errors.New("no answer")
}

func TestTimeoutOfRequests(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Second: time.Second, time.Hour: time.Hour} {
		sees := &deadlines{}
		config := &rest.Config{Host: "https://nowhere", Transport: sees, Timeout: timeout}
		begun := time.Now()
		c, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), "/", nil); err == nil || sees.given > want || sees.given < want-time.Since(begun) {
			t.Errorf("with %v: %v, %v for a request", timeout, err, sees.given)
		}
		if config.Timeout != timeout {
			t.Errorf("the configuration says %v", config.Timeout)
		}
	}
}

func TestBoundedBody(t *testing.T) {
	const text = "an answer"
	for name, as := range map[string]func(io.Reader) io.Reader{
		"at once":            func(r io.Reader) io.Reader { return r },
		"byte by byte":       iotest.OneByteReader,
		"ends with the last": iotest.DataErrReader,
	} {
		for _, spare := range []int64{-1, 0, 1} {
			body := &boundedBody{ReadCloser: io.NopCloser(as(strings.NewReader(text))), left: int64(len(text)) + spare}
			got, err := io.ReadAll(body)
			if tooLarge := errors.Is(err, errTooLarge); tooLarge != (spare < 0) || !tooLarge && (err != nil || string(got) != text) {
				t.Errorf("%s, %d bytes to spare: %q, %v", name, spare, got, err)
			}
		}
	}
}
