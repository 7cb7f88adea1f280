//go:build linux

package bed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AuditedUser is the user whose requests an API server writes down: the agent, when it
// has the user of its own, in its default namespace.
const AuditedUser = "system:serviceaccount:liqo:liqo-agent"

const (
	// auditedApart is the same in a namespace of its own, as beside Liqo.
	auditedApart = "system:serviceaccount:liqo-agent:liqo-agent"

	auditPolicyPath = kubeDir + "/audit-policy.yaml"
	auditLogPath    = kubeDir + "/audit.log"

	// A watch has a response that starts, and one that is complete when it ends.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + AuditedUser + `", "` + auditedApart + `"]}
- {level: None}
`
)

// AuditEvent is one answer of an API server to AuditedUser, as audit.k8s.io/v1 has it. A
// watch has two, as has everything that may go on for long.
type AuditEvent struct {
	Verb             string
	RequestURI       string
	ImpersonatedUser *struct{ Username string } // nil when the user asked for itself
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   struct {
		Code    int
		Message string
	}
	RequestReceivedTimestamp time.Time
	// Starting: the API server had not said yet that it was ready. Until then it knows
	// no roles, and forbids everything.
	Starting bool `json:"-"`
}

// Writes reports whether the request was to change something. The leases of nodes do not count: they are there to be renewed.
func (e AuditEvent) Writes() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && e.ObjectRef.Resource != "leases" &&
		!strings.HasSuffix(e.ObjectRef.Resource, "reviews") && !strings.Contains(e.RequestURI, "dryRun=")
}

// auditSize returns how long the audit log is.
func (k *Kube) auditSize() int64 {
	info, err := os.Stat(filepath.Join(k.dir, filepath.Base(auditLogPath)))
	if err != nil {
		return 0 // there is none yet
	}
	return info.Size()
}

// Audit returns what the API server has answered to AuditedUser since it was started
// for the first time, or lent.
func (k *Kube) Audit() ([]AuditEvent, error) {
	text, err := os.ReadFile(filepath.Join(k.dir, filepath.Base(auditLogPath)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: audit log: %w", k.Host.Name, err)
	}
	var events []AuditEvent
	for line := range bytes.Lines(text[min(k.auditFrom, int64(len(text))):]) {
		var event AuditEvent
		if json.Unmarshal(line, &event) != nil {
			continue // cut off, when the API server was killed
		}
		if event.RequestReceivedTimestamp.Before(k.since) {
			continue // a watch of the test before has ended only now
		}
		event.Starting = k.starting(event.RequestReceivedTimestamp)
		events = append(events, event)
	}
	return events, nil
}
