package kube

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

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
