package conn

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestBridgeKlog(t *testing.T) {
	var log bytes.Buffer
	t.Cleanup(klog.ClearLogger)
	BridgeKlog(slog.New(slog.NewTextHandler(&log, nil)))
	klog.Error("noise")
	klog.ErrorS(errors.New("x"), "noise")
	klog.Background().WithName("reflector").Error(nil, "noise")
	if log.Len() > 0 {
		t.Errorf("client-go's noise is visible by default:\n%s", log.String())
	}
	BridgeKlog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	klog.ErrorS(errors.New("x"), "noise", "key", "value")
	if got := log.String(); !strings.Contains(got, "level=DEBUG") || !strings.Contains(got, "key=value") || !strings.Contains(got, "component=client-go") {
		t.Errorf("at debug level it is %q", got)
	}
}
