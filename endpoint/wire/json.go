package wire

import (
	"bytes"
	"encoding/json"
)

// encode is json.Marshal without the escapes for HTML, which a name in /ids
// does not need, and without a newline.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
