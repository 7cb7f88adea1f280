package api

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields is a set of fields as metadata.managedFields has them: below "f:spec" there is "f:join".
type Fields map[string]Fields

// FieldsOf decodes a set of fields. It is nil for none, and for anything that is no such set.
func FieldsOf(fields *metav1.FieldsV1) Fields {
	var set Fields
	if fields == nil || json.Unmarshal(fields.GetRawBytes(), &set) != nil {
		return nil
	}
	return set
}

// At returns the fields below a path, nil when the path is not in the set.
func (f Fields) At(path ...string) Fields {
	for _, name := range path {
		f = f[name]
	}
	return f
}

// Has reports whether a path is in the set.
func (f Fields) Has(path ...string) bool { return f.At(path...) != nil }
