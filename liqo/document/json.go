package document

import (
	"bytes"
	"encoding/json"
	"fmt"

	"liqo.io/agent/endpoint/wire"
)

// decode reads a document into a struct that has a field for all that it may say.
func decode(body []byte, limit int, into any) error {
	if len(body) > limit {
		return fmt.Errorf("it has %d bytes; at most %d make sense", len(body), limit)
	}
	if err := wire.CheckJSON(body); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
