//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

// Two strangers become peers: each person compares the code once, and from then
// on everything follows by itself.
func TestPeering(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	a, b := p.a, p.b

	t.Run("a stranger is not joined", func(t *testing.T) {
		a.setJoin(p.bID, true)
		fc := a.awaitStatus("waits for trust", p.bID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingTrust")
		})
		message := fc.Condition(api.ConditionOutgoingPeering).Message
		code := a.peerJSON(p.bID).Code
		if !strings.Contains(message, code) || !strings.Contains(message, "liqo-agent peers connect") || len(code) < 40 {
			t.Errorf("the message does not say how to give trust (code %s): %s", code, message)
		}
		if theirs := b.peerJSON(p.aID).Code; theirs != code {
			t.Errorf("the codes differ: %s and %s", code, theirs)
		}
		if _, found, err := get[map[string]any](b, prPath+"/"+p.aID); found || err != nil {
			t.Errorf("a request came to a cluster whose key nobody trusts: %v %v", found, err)
		}
		if _, err := a.cli("peers", "connect", p.bID); err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("connect without a terminal does not ask for confirmation: %v", err)
		}
		a.setJoin(p.bID, false)
	})

	t.Run("connect and accept", func(t *testing.T) {
		a.mustCLI("peers", "connect", p.bID, "--yes", "--no-wait")
		var request control.Request
		b.eventually("the request is seen", func() error {
			requests, err := cliJSON[[]control.Request](b, "peers", "requests")
			if err != nil {
				return err
			}
			i := slices.IndexFunc(requests, func(r control.Request) bool { return r.ID == p.aID })
			if i < 0 {
				return fmt.Errorf("requests: %+v", requests)
			}
			request = requests[i]
			return nil
		})
		if code := a.peerJSON(p.bID).Code; request.Code != code {
			t.Errorf("the provider shows the code %s, the consumer %s", request.Code, code)
		}
		a.awaitStatus("waits for a person", p.bID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingAcceptance")
		})
		b.mustCLI("peers", "accept", p.aID, "--yes")
		out := a.mustCLI("peers", "connect", p.bID, "--timeout", soon.String())
		if !strings.Contains(out, "INFO") {
			t.Errorf("connect does not tell its steps:\n%s", out)
		}
		p.works()
	})

	t.Run("what the objects say", func(t *testing.T) {
		// Of what the two tell each other, some is known a moment after they are joined.
		fc := a.awaitStatus("says all of the provider", p.bID, func(fc *api.ForeignCluster) error {
			out := fc.Status.Outgoing
			if fc.Status.Role != api.RoleProvider || out.RemotePeeringRequestName != p.aID || !out.AvailableIdentity ||
				out.AdvertisementStatus != api.AdvertisementAccepted || out.Advertisement == nil || out.Advertisement.Name != p.bID ||
				out.CADataRef == nil || fc.Status.AuthStatus != api.AuthAccepted || fc.Spec.TrustMode != api.TrustTrusted || !fc.Spec.Join {
				return fmt.Errorf("%+v %+v", fc.Spec, fc.Status)
			}
			return errors.Join(condition(fc, "Trusted", api.ConditionTrue, "PersonDecided"), condition(fc, api.ConditionOutgoingPeering, api.ConditionTrue, "Joined"))
		})
		out := fc.Status.Outgoing
		secret, found, err := get[struct{ Data map[string][]byte }](a, secretPath+"/"+out.CADataRef.Name)
		if err != nil || !found || !strings.Contains(string(secret.Data["ca.crt"]), "BEGIN CERTIFICATE") || string(secret.Data["fingerprint"]) != fc.Status.Fingerprint {
			t.Errorf("the identity Secret: %v %v %v", secret.Data, found, err)
		}
		b.awaitStatus("says all of the consumer", p.aID, func(back *api.ForeignCluster) error {
			in := back.Status.Incoming
			if back.Status.Role != api.RoleConsumer || in.PeeringRequest == nil || in.PeeringRequest.Name != p.aID || back.Spec.Join || back.Status.Outgoing.Joined {
				return fmt.Errorf("%+v %+v", back.Spec, back.Status)
			}
			return nil
		})
		pr, found, err := get[api.PeeringRequest](b, prPath+"/"+p.aID)
		if err != nil || !found || pr.Status.Phase != api.RequestAccepted || pr.Spec.ClusterIdentity.ClusterName != "alder" {
			t.Errorf("the request: %+v %v %v", pr, found, err)
		}
		offer, found, err := get[api.Advertisement](a, advPath+"/"+p.bID)
		if err != nil || !found || offer.Status.AdvertisementStatus != api.AdvertisementAccepted {
			t.Errorf("the offer: %+v %v %v", offer, found, err)
		}
		cpu := strings.TrimSpace(b.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}"))
		if cpu != "4" || offer.Spec.ResourceQuota.Hard["cpu"] != "2" { // sharing.percentage is 50
			t.Errorf("the offer is of %v, the provider's node has cpu %s", offer.Spec.ResourceQuota.Hard, cpu)
		}
		columns := a.kubectl("get", "foreignclusters")
		if !strings.Contains(columns, "Provider") || !strings.Contains(columns, "birch") {
			t.Errorf("kubectl get foreignclusters:\n%s", columns)
		}
		if got := strings.TrimSpace(a.mustCLI("info", p.bID, "--get", "outgoing.joined")); got != "true" {
			t.Errorf("info --get outgoing.joined: %q", got)
		}
	})

	t.Run("what is deleted or edited comes back", func(t *testing.T) {
		before := p.objects()
		a.kubectl("delete", "secret", "-n", "liqo", "liqo-peer-"+p.bID)
		a.uidOf(secretPath + "/liqo-peer-" + p.bID)
		a.kubectl("delete", "adv", p.bID)
		a.uidOf(advPath + "/" + p.bID)
		b.kubectl("delete", "clusterrole", "liqo:peer:"+p.aID)
		b.uidOf(rolePath + "/liqo:peer:" + p.aID)
		b.kubectl("patch", "pr", p.aID, "--type", "merge", "-p", `{"spec":{"namespace":"elsewhere"}}`)
		b.eventually("the request is put right", func() error {
			pr, _, err := get[api.PeeringRequest](b, prPath+"/"+p.aID)
			if err == nil && pr.Spec.Namespace != "liqo" {
				err = fmt.Errorf("namespace %s", pr.Spec.Namespace)
			}
			return err
		})
		p.works()
		delete(before, "the Advertisement")
		delete(before, "A's identity Secret")
		now := p.objects()
		for name, uid := range before {
			if now[name] != uid {
				t.Errorf("%s is not the one that it was", name)
			}
		}
	})

	t.Run("the other direction is independent", func(t *testing.T) {
		a.mustCLI("peers", "accept", p.bID)
		b.mustCLI("peers", "connect", p.aID, "--timeout", soon.String())
		fc := a.awaitStatus("is joined both ways", p.bID, func(fc *api.ForeignCluster) error {
			return errors.Join(outgoing(true)(fc), incoming(true)(fc))
		})
		if fc.Status.Role != api.RoleConsumerAndProvider {
			t.Errorf("role %s", fc.Status.Role)
		}
		b.mustCLI("peers", "disconnect", p.aID, "--timeout", soon.String())
		a.gone(prPath + "/" + p.bID)
		b.gone(advPath + "/" + p.aID)
		p.works()
		b.awaitStatus("says that it consumes nothing", p.aID, func(fc *api.ForeignCluster) error {
			if fc.Status.Outgoing.Joined || fc.Spec.Join || fc.Status.Role != api.RoleConsumer {
				return fmt.Errorf("%+v %+v", fc.Spec, fc.Status)
			}
			return nil
		})
	})

	t.Run("disconnect and connect again and again", func(t *testing.T) {
		for range 3 {
			a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
			b.gone(prPath + "/" + p.aID)
			a.gone(advPath + "/" + p.bID)
			a.gone(secretPath + "/liqo-peer-" + p.bID)
			b.awaitStatus("no longer serves", p.aID, incoming(false))
			a.mustCLI("peers", "connect", p.bID, "--timeout", soon.String())
			p.works()
		}
	})

	t.Run("kubectl means the same", func(t *testing.T) {
		a.setJoin(p.bID, false)
		b.gone(prPath + "/" + p.aID)
		a.eventually("it is remembered", func() error {
			got, err := a.peer(p.bID)
			if err == nil && got.Preferences.AutoConnect != control.No {
				err = fmt.Errorf("auto-connect %s", got.Preferences.AutoConnect)
			}
			return err
		})
		a.awaitStatus("is no longer joined", p.bID, outgoing(false))
		a.gone(advPath + "/" + p.bID)
		a.setJoin(p.bID, true)
		p.works()
		if got := a.peerJSON(p.bID).Preferences.AutoConnect; got != control.Yes {
			t.Errorf("auto-connect %s after join: true", got)
		}
		if history := a.mustCLI("peers", "history", p.bID); !strings.Contains(history, "kubectl") {
			t.Errorf("the history does not say that kubectl did it:\n%s", history)
		}
	})

	t.Run("the provider ends it with kubectl", func(t *testing.T) {
		b.kubectl("delete", "pr", p.aID)
		fc := a.awaitStatus("is no longer joined", p.bID, func(fc *api.ForeignCluster) error {
			return errors.Join(outgoing(false)(fc), condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "EndedByProvider"))
		})
		a.eventually("join is false", func() error {
			if fc, err := a.full(p.bID); err != nil || fc.Spec.Join {
				return fmt.Errorf("join is true: %v", err)
			}
			return nil
		})
		a.gone(advPath + "/" + p.bID)
		_ = fc
		// A person at A wants it again: a person at B has to agree.
		a.mustCLI("peers", "connect", p.bID, "--no-wait")
		a.awaitStatus("waits for a person", p.bID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingAcceptance")
		})
		b.awaitStatus("shows who asks", p.aID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionAccessRequested, api.ConditionTrue, "Pending")
		})
		b.kubectl("patch", "peeringrequest", p.aID, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Accepted"}}`)
		p.works()
		if got := b.peerJSON(p.aID).Preferences.AutoAccept; got != control.Yes {
			t.Errorf("auto-accept %s after kubectl accepted", got)
		}
	})

	t.Run("the provider ends it on the command line", func(t *testing.T) {
		b.mustCLI("peers", "disconnect", p.aID, "--incoming")
		a.awaitStatus("is no longer joined", p.bID, func(fc *api.ForeignCluster) error {
			if fc.Spec.Join {
				return errors.New("join is true")
			}
			return errors.Join(outgoing(false)(fc), condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "EndedByProvider"))
		})
		b.mustCLI("peers", "accept", p.aID)
		a.mustCLI("peers", "connect", p.bID, "--timeout", soon.String())
		p.works()
	})

	t.Run("deleting the ForeignCluster hangs up", func(t *testing.T) {
		uid := a.uidOf(fcPath + "/" + p.bID)
		a.kubectl("delete", "fc", p.bID)
		b.gone(prPath + "/" + p.aID)
		a.gone(advPath + "/" + p.bID)
		a.awaitStatus("is made anew and not joined", p.bID, func(fc *api.ForeignCluster) error {
			if string(fc.UID) == uid || fc.Spec.Join {
				return fmt.Errorf("UID %s, join %v", fc.UID, fc.Spec.Join)
			}
			return outgoing(false)(fc)
		})
		a.mustCLI("peers", "connect", p.bID, "--timeout", soon.String())
		p.works()
	})

	t.Run("forget ends what was wanted", func(t *testing.T) {
		for range 3 {
			a.mustCLI("peers", "forget", p.bID, "--yes")
			b.gone(prPath + "/" + p.aID)
			a.awaitStatus("is there as a stranger, and not joined", p.bID, func(fc *api.ForeignCluster) error {
				if fc.Spec.Join || fc.Spec.TrustMode == api.TrustTrusted {
					return fmt.Errorf("%+v", fc.Spec)
				}
				return outgoing(false)(fc)
			})
			a.awaitPeer(p.bID, "Present")
			b.mustCLI("peers", "accept", p.aID)
			a.mustCLI("peers", "connect", p.bID, "--yes", "--timeout", soon.String())
			p.works()
		}
	})

	t.Run("block ends everything", func(t *testing.T) {
		b.mustCLI("peers", "block", p.aID)
		b.gone(prPath + "/" + p.aID)
		a.awaitStatus("is no longer joined", p.bID, outgoing(false))
		// Who asks meanwhile is refused, and asks again by itself once it may.
		a.mustCLI("peers", "connect", p.bID, "--no-wait")
		a.awaitStatus("is refused", p.bID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "Refused")
		})
		b.mustCLI("peers", "unblock", p.aID)
		b.mustCLI("peers", "accept", p.aID)
		p.works()
	})

	t.Run("a command that is interrupted leaves things as they are", func(t *testing.T) {
		for x, id := range map[*box]string{a: p.bID, b: p.aID} {
			x.mustCLI("peers", "forget", id, "--yes")
		}
		b.gone(prPath + "/" + p.aID)
		a.awaitFC("is there as a stranger", p.bID, reachable)
		a.awaitPeer(p.bID, "Present")
		b.awaitPeer(p.aID, "Present")
		connect := a.host.Start(bed.Cmd{Name: "connect", Args: []string{a.bin, "peers", "connect", p.bID, "--yes"}})
		a.awaitStatus("waits for a person", p.bID, func(fc *api.ForeignCluster) error {
			return condition(fc, api.ConditionOutgoingPeering, api.ConditionFalse, "AwaitingAcceptance")
		})
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		// The command may hear of it last.
		if err := connect.WaitLog(ctx, "INFO"); err != nil {
			t.Fatal(err)
		}
		if err := connect.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		err := connect.Wait(ctx)
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(130)) {
			t.Errorf("it ended with %v", err)
		}
		if log := connect.Log(); !strings.Contains(log, "peers disconnect") {
			t.Errorf("it does not say how to undo it:\n%s", log)
		}
		b.mustCLI("peers", "accept", p.aID, "--yes")
		p.works()
	})
}
