package install

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestCheckIfMissing: everything is looked at when the API server does not serve a kind,
// once however often it says so, and not for other errors.
func TestCheckIfMissing(t *testing.T) {
	what := schema.GroupResource{Group: "discovery.liqo.io", Resource: "foreignclusters"}
	k := NewKeeper(Config{}, nil, nil)
	for _, err := range []error{nil, errors.New("no route to host"), apierrors.NewForbidden(what, "x", nil), apierrors.NewConflict(what, "x", nil)} {
		if k.CheckIfMissing(err); len(k.check) != 0 {
			t.Errorf("looked at after %v", err)
		}
	}
	for range 3 {
		if k.CheckIfMissing(apierrors.NewNotFound(what, "")); len(k.check) != 1 {
			t.Error("not looked at")
		}
	}
}
