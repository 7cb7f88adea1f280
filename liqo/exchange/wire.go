package exchange

import (
	"encoding/json"
	"fmt"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/peer/text"
)

// maxAnswer bounds an Answer in bytes.
const maxAnswer = 96 << 10

// ParseCall reads what a consumer says. Its Tenant is not read yet: that takes the nonce.
func ParseCall(body []byte) (Call, error) {
	var c Call
	if err := wire.CheckJSON(body); err != nil {
		return Call{}, err
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return Call{}, err
	}
	_, err := document.ParseClusterID(string(c.ClusterID))
	c.Tenant, c.Network = said(c.Tenant), said(c.Network)
	return c, err
}

// ParseAnswer reads what a provider answers. Its Identity is not read yet: that takes our keys.
func ParseAnswer(body []byte) (Answer, error) {
	var a Answer
	if len(body) > maxAnswer {
		return Answer{}, fmt.Errorf("answers %s with %d bytes, at most %d make sense", wire.PathLiqo, len(body), maxAnswer)
	}
	err := wire.CheckJSON(body)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err == nil {
		_, err = document.ParseClusterID(string(a.ClusterID))
	}
	if err == nil && a.Nonce != "" {
		_, err = document.ParseNonce([]byte(a.Nonce))
	}
	if err != nil {
		return Answer{}, fmt.Errorf("answers %s with something else: %w", wire.PathLiqo, err)
	}
	a.Identity, a.Network = said(a.Identity), said(a.Network)
	a.Waits = text.Sentence(a.Waits)
	return a, nil
}

// said returns a document, nil if there is none.
func said(text json.RawMessage) json.RawMessage {
	if string(text) == "null" {
		return nil
	}
	return text
}
