package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

const (
	// localPath is the provisioner that K3s brings, and localPathApp the label app of its pods. Nodes have its volumes as directories.
	localPath    = "rancher.io/local-path"
	localPathApp = "local-path-provisioner"
	// noProvisioner is that of classes whose volumes people make.
	noProvisioner = "kubernetes.io/no-provisioner"

	annotationSelected      = "volume.kubernetes.io/selected-node"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"

	// longWait is after how long a claim should have its volume. local-path gives up after two minutes.
	longWait = 3 * time.Minute
)

// storageThere is what the API server has of storage.
type storageThere struct {
	classes []*storageclass.Class
	claims  []corev1.PersistentVolumeClaim
	volumes []corev1.PersistentVolume
	// provisioners is how many pods of local-path's provisioner run.
	provisioners int
	// offerers are the IDs of clusters whose offers of storage are accepted.
	offerers []string
}

// findStorage reads it.
func findStorage(ctx context.Context, c *kube.Client) (storageThere, error) {
	var (
		out     storageThere
		classes struct{ Items []*storageclass.Class }
		pods    struct{ Items []policyPod }
		offers  struct{ Items []api.Advertisement }
		claims  corev1.PersistentVolumeClaimList
		volumes corev1.PersistentVolumeList
	)
	for path, into := range map[string]any{
		"/apis/storage.k8s.io/v1/storageclasses": &classes, "/api/v1/persistentvolumeclaims": &claims, "/api/v1/persistentvolumes": &volumes,
		"/api/v1/pods": &pods, "/apis/sharing.liqo.io/v1alpha1/" + api.PluralAdvertisements: &offers,
	} {
		// Without their definition there are no offers, and another check says so.
		if err := c.Get(ctx, path, into); err != nil && !apierrors.IsNotFound(err) {
			return out, err
		}
	}
	out.classes, out.claims, out.volumes = classes.Items, claims.Items, volumes.Items
	for _, p := range pods.Items {
		if p.Status.Phase == string(corev1.PodRunning) && p.Metadata.Labels["app"] == localPathApp {
			out.provisioners++
		}
	}
	for _, o := range offers.Items {
		if offered, err := resource.ParseQuantity(o.Spec.ResourceQuota.Hard[string(corev1.ResourceStorage)]); err == nil && offered.Sign() > 0 && o.Status.AdvertisementStatus == api.AdvertisementAccepted {
			out.offerers = append(out.offerers, o.Spec.ClusterID)
		}
	}
	return out, nil
}

func checkStorage(ctx context.Context, b *Box) []Finding {
	there, err := b.kubernetes(ctx)
	if f, none := without(there, err); none {
		return []Finding{f}
	}
	s, err := findStorage(ctx, there.client)
	if err != nil {
		return []Finding{skipped("cannot look at storage classes, claims and volumes: %v", err)}
	}
	cfg := b.config().Sharing
	out := judgeStorageClass(s, cfg)
	offered, err := resource.ParseQuantity(cfg.Storage)
	offers := err == nil && offered.Sign() > 0 && cfg.Enable // check config says what is wrong with it
	if offers {
		out = append(out, b.judgeOffered(s, cfg, offered)...)
	}
	switch {
	case len(out) > 0:
	case offers:
		out = append(out, fine("%s are offered to peers", &offered))
	default:
		out = append(out, fine("no storage is offered to peers (sharing.storage)"))
	}
	return out
}

// judgeOffered says whether this cluster can keep the claims of peers.
func (b *Box) judgeOffered(s storageThere, cfg config.Sharing, offered resource.Quantity) []Finding {
	class, out := judgeGuestClass(s.classes, cfg)
	if class == nil {
		return out
	}
	out = append(out, judgeProvisioner(s, class, b.now())...)
	for _, dir := range directories(s.volumes, class.Name) {
		// A volume that is not on this machine, or that this user may not see, says nothing.
		if d, err := b.ask.disk(dir); err == nil {
			return append(out, judgeVolumes(d, class.Name, offered)...)
		}
	}
	return out
}

// judgeGuestClass returns the storage class for claims of peers, if there is one, and says what is wrong with it.
func judgeGuestClass(classes []*storageclass.Class, cfg config.Sharing) (*storageclass.Class, []Finding) {
	class, _ := host.GuestClass(cfg.GuestStorageClass, classes)
	problem := host.ClassProblem(cfg.GuestStorageClass, classes)
	if problem == "" {
		return class, nil
	}
	f := Finding{Code: "storage-no-class", Status: Warning, What: "storage is offered to peers (sharing.storage), but " + problem, Why: "claims of peers are refused (NoStorage)"}
	var fit []string
	for _, c := range classes {
		if c.VolumeBindingMode == storageclass.WaitForFirstConsumer && c.Provisioner != workload.Provisioner {
			fit = append(fit, c.Name)
		}
	}
	slices.Sort(fit)
	if class != nil {
		f.Code, f.Why = "storage-class-immediate", "a pod of a peer may stay Pending for ever, because its data was put on a node that has no room for it"
	}
	switch {
	case len(fit) > 0:
		f.Do = append(f.Do, fmt.Sprintf("set sharing.guest_storage_class = %q, and reload the configuration: sudo systemctl reload liqo-agent", fit[0]))
		if cfg.GuestStorageClass == "" && class == nil {
			f.Do = append(f.Do, "or make it the default class: kubectl annotate storageclass "+fit[0]+" "+storageclass.AnnotationDefault+"=true")
		}
	case class != nil:
		f.Do = append(f.Do, fmt.Sprintf(`make a class of the same provisioner that waits: kubectl get storageclass %s -o json | jq '{apiVersion, kind, provisioner, parameters, reclaimPolicy, metadata: {name: "guests"}, volumeBindingMode: "WaitForFirstConsumer"}' | kubectl apply -f -`, class.Name),
			`then set sharing.guest_storage_class = "guests", and reload the configuration: sudo systemctl reload liqo-agent`)
	default:
		f.Do = append(f.Do, "K3s brings the class local-path, unless it is started with --disable local-storage: remove that from /etc/rancher/k3s/config.yaml or its arguments, and restart it: sudo systemctl restart k3s",
			"or install another provisioner with a class that has volumeBindingMode WaitForFirstConsumer")
	}
	f.Do = append(f.Do, `or offer none: sharing.storage = "0"`)
	return class, []Finding{f}
}

// judgeProvisioner says whether anybody makes the volumes of a class.
func judgeProvisioner(s storageThere, class *storageclass.Class, now time.Time) []Finding {
	f := Finding{Code: "storage-no-provisioner", Status: Warning, Why: "pods of peers with claims do not start"}
	logs := []string{"look for its pod, and what it says: kubectl get pods -A | grep provisioner"}
	if class.Provisioner == localPath {
		logs = []string{"look whether it runs, and what it says: kubectl logs -n kube-system -l app=" + localPathApp,
			"K3s does not start it with --disable local-storage: remove that from /etc/rancher/k3s/config.yaml or its arguments, and restart it: sudo systemctl restart k3s"}
	}
	var waiting []string
	for _, c := range s.claims {
		chosen := c.Annotations[annotationSelected] != "" || class.VolumeBindingMode != storageclass.WaitForFirstConsumer
		if c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == class.Name && c.Status.Phase == corev1.ClaimPending && chosen && now.Sub(c.CreationTimestamp.Time) > longWait {
			waiting = append(waiting, c.Namespace+"/"+c.Name)
		}
	}
	slices.Sort(waiting)
	made, free := false, false
	for _, v := range s.volumes {
		made = made || v.Annotations[annotationProvisionedBy] == class.Provisioner
		free = free || v.Spec.StorageClassName == class.Name && v.Status.Phase == corev1.VolumeAvailable
	}
	switch {
	case len(waiting) > 0:
		namespace, name, _ := strings.Cut(waiting[0], "/")
		f.What = fmt.Sprintf("claims of storage class %s have been waiting for a volume for more than %s (%s): its provisioner, %s, does not run, or cannot make it", class.Name, longWait, text.List(waiting, 3, ", "), class.Provisioner)
		f.Do = append([]string{"find out why: kubectl describe pvc -n " + namespace + " " + name}, logs...)
	case class.Provisioner == noProvisioner && !free:
		f.What = fmt.Sprintf("storage class %s has no free volume, and nobody makes one (provisioner %s)", class.Name, noProvisioner)
		f.Do = []string{"make PersistentVolumes of the class, at least as large as claims may be", "or set sharing.guest_storage_class to a class with a provisioner"}
	case class.Provisioner == localPath && s.provisioners == 0 && !made:
		f.What = fmt.Sprintf("the provisioner of storage class %s, %s, does not seem to run: it has no pod, and has made no volume", class.Name, localPath)
		f.Do = logs
	default:
		return nil
	}
	return []Finding{f}
}

// directories returns the directories of volumes of a class.
func directories(volumes []corev1.PersistentVolume, class string) []string {
	var out []string
	for _, v := range volumes {
		switch {
		case v.Spec.StorageClassName != class:
		case v.Spec.Local != nil:
			out = append(out, v.Spec.Local.Path)
		case v.Spec.HostPath != nil:
			out = append(out, v.Spec.HostPath.Path)
		}
	}
	return out
}

// lowVolumes is which part of the disk with volumes is to be free: a tenth. Below 5 %, K3s evicts pods.
const lowVolumes = 10

// judgeVolumes says whether the disk with the volumes of a class is large enough.
func judgeVolumes(d look.Disk, class string, offered resource.Quantity) []Finding {
	var out []Finding
	if d.FreeBytes < d.Bytes/lowVolumes {
		out = append(out, Finding{Code: "storage-disk-low", Status: Warning, What: fmt.Sprintf("the disk with the volumes of storage class %s is nearly full: %s of %s free", class, size(d.FreeBytes), size(d.Bytes)),
			Why: "programs with data there fail when it is full; before, K3s evicts pods, those of this cluster, too",
			Do: []string{"see whose claims are here: liqo-agent storage list", "remove what is only kept after a peering, if nobody needs it: liqo-agent storage reclaim PEER",
				"find out what uses the space: sudo du -xh / | sort -h | tail -30"}})
	}
	if offered.CmpInt64(int64(min(d.Bytes, 1<<62))) > 0 {
		out = append(out, Finding{Code: "storage-disk-small", Status: Warning, What: fmt.Sprintf("%s are offered to peers (sharing.storage), and the disk with the volumes of storage class %s has only %s", &offered, class, size(d.Bytes)),
			Why: "peers count on space that does not exist", Do: []string{"lower sharing.storage, and reload the configuration: sudo systemctl reload liqo-agent"}})
	}
	return out
}

// judgeStorageClass says whether the class for data at providers is there when it should be.
func judgeStorageClass(s storageThere, cfg config.Sharing) []Finding {
	var out []Finding
	used := make(map[string]bool)
	for _, c := range s.claims {
		if c.Spec.StorageClassName != nil {
			used[*c.Spec.StorageClassName] = true
		}
	}
	for _, v := range s.volumes {
		used[v.Spec.StorageClassName] = true
	}
	there := make(map[string]*storageclass.Class)
	for _, c := range s.classes {
		there[c.Name] = c
	}
	offering := len(s.offerers) > 0 && cfg.Use
	switch own := there[cfg.StorageClass]; {
	case own == nil && offering:
		out = append(out, Finding{Code: "storage-class-missing", Status: Warning, What: fmt.Sprintf("%s offers storage, and there is no storage class %s", text.List(s.offerers, 3, ", "), cfg.StorageClass),
			Why: "no data can be kept at providers; claims of the class wait",
			Do:  []string{"let the agent keep the class: sudo liqo-agent rbac --apply", "if it may, restart it, and see what it logs: sudo systemctl restart liqo-agent; journalctl -u liqo-agent -n 50"}})
	case own != nil && own.Provisioner != workload.Provisioner && offering:
		out = append(out, Finding{Code: "storage-class-taken", Status: Warning, What: fmt.Sprintf("the storage class %s, which sharing.storage_class names, is of another provisioner: %s", cfg.StorageClass, own.Provisioner),
			Why: "no data can be kept at providers",
			Do:  []string{"set sharing.storage_class to another name, and restart the agent: sudo systemctl restart liqo-agent", "or delete that class: kubectl delete storageclass " + cfg.StorageClass}})
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if c := there[name]; c.Provisioner != workload.Provisioner || c.Labels[api.LabelManagedBy] != api.ManagedByAgent || name == cfg.StorageClass && (offering || used[name]) {
			continue
		}
		f := Finding{Code: "storage-class-stale", Status: Warning, What: fmt.Sprintf("the storage class %s is left over: nobody offers storage, and no claim uses it", name),
			Why: "claims of the class wait for ever", Do: []string{"kubectl delete storageclass " + name}}
		if name != cfg.StorageClass {
			f.What = fmt.Sprintf("the storage class %s is left over from another sharing.storage_class, which is %s now", name, cfg.StorageClass)
		}
		out = append(out, f)
	}
	return out
}
