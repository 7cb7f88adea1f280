package doctor

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

func classOf(name, provisioner, mode string, def bool) *storageclass.Class {
	c := &storageclass.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode}
	if def {
		c.Annotations = map[string]string{storageclass.AnnotationDefault: "true"}
	}
	if provisioner == workload.Provisioner {
		c.Labels = map[string]string{api.LabelManagedBy: api.ManagedByAgent}
	}
	return c
}

const (
	waits     = "WaitForFirstConsumer"
	immediate = "Immediate"
)

func TestJudgeGuestClass(t *testing.T) {
	local, slow, ours := classOf("local-path", localPath, waits, true), classOf("slow", "x", immediate, false), classOf("liqo", workload.Provisioner, waits, false)
	for _, tc := range []struct {
		name     string
		classes  []*storageclass.Class
		setting  string
		want, do string
	}{
		{"the default one", []*storageclass.Class{local, slow, ours}, "", "", ""},
		{"none", nil, "", "storage-no-class warning", "--disable local-storage"},
		{"only ours", []*storageclass.Class{ours}, "", "storage-no-class warning", "--disable local-storage"},
		{"no default", []*storageclass.Class{slow, classOf("fast", "x", waits, false), ours}, "", "storage-no-class warning", "kubectl annotate storageclass fast storageclass.kubernetes.io/is-default-class=true"},
		{"a misspelled one", []*storageclass.Class{local}, "lokal-path", "storage-no-class warning", `sharing.guest_storage_class = "local-path"`},
		{"ours by name", []*storageclass.Class{local, ours}, "liqo", "storage-no-class warning", `sharing.guest_storage_class = "local-path"`},
		{"one that does not wait", []*storageclass.Class{local, slow}, "slow", "storage-class-immediate warning", `sharing.guest_storage_class = "local-path"`},
		{"only one that does not wait", []*storageclass.Class{slow}, "slow", "storage-class-immediate warning", "kubectl get storageclass slow -o json | jq"},
	} {
		_, found := judgeGuestClass(tc.classes, config.Sharing{GuestStorageClass: tc.setting})
		checkFindings(t, tc.name, found, tc.want, tc.do)
	}
}

func TestJudgeProvisioner(t *testing.T) {
	now := time.Now()
	claim := func(class, selected string, age time.Duration, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		c.Spec.StorageClassName, c.Status.Phase = &class, phase
		if selected != "" {
			c.Annotations = map[string]string{annotationSelected: selected}
		}
		return c
	}
	made := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationProvisionedBy: localPath}}}
	free := corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "disks"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
	local, disks, nfs, atOnce := classOf("local-path", localPath, waits, true), classOf("disks", noProvisioner, waits, false), classOf("nfs", "nfs.example.com", waits, false), classOf("now", "x", immediate, false)
	for _, tc := range []struct {
		name     string
		there    storageThere
		class    *storageclass.Class
		want, do string
	}{
		{"its pod runs", storageThere{provisioners: 1}, local, "", ""},
		{"it has made a volume", storageThere{volumes: []corev1.PersistentVolume{made}}, local, "", ""},
		{"neither", storageThere{volumes: []corev1.PersistentVolume{free}}, local, "storage-no-provisioner warning", "sudo systemctl restart k3s"},
		{"another, of which nothing is known", storageThere{}, nfs, "", ""},
		{"a volume is free", storageThere{volumes: []corev1.PersistentVolume{free}}, disks, "", ""},
		{"no volume is free", storageThere{volumes: []corev1.PersistentVolume{made}}, disks, "storage-no-provisioner warning", "make PersistentVolumes of the class"},
		{"a claim waits for long", storageThere{provisioners: 1, claims: []corev1.PersistentVolumeClaim{claim("local-path", "alder", time.Hour, corev1.ClaimPending)}}, local, "storage-no-provisioner warning", "kubectl describe pvc -n shop data"},
		{"not for long yet", storageThere{provisioners: 1, claims: []corev1.PersistentVolumeClaim{claim("local-path", "alder", time.Minute, corev1.ClaimPending)}}, local, "", ""},
		{"for its pod", storageThere{provisioners: 1, claims: []corev1.PersistentVolumeClaim{claim("local-path", "", time.Hour, corev1.ClaimPending)}}, local, "", ""},
		{"it needs no pod", storageThere{claims: []corev1.PersistentVolumeClaim{claim("now", "", time.Hour, corev1.ClaimPending)}}, atOnce, "storage-no-provisioner warning", "kubectl describe pvc"},
		{"bound, and of another class", storageThere{provisioners: 1, claims: []corev1.PersistentVolumeClaim{claim("local-path", "alder", time.Hour, corev1.ClaimBound), claim("nfs", "alder", time.Hour, corev1.ClaimPending)}}, local, "", ""},
	} {
		checkFindings(t, tc.name, judgeProvisioner(tc.there, tc.class, now), tc.want, tc.do)
	}
}

func TestJudgeVolumes(t *testing.T) {
	for _, tc := range []struct {
		name        string
		bytes, free uint64
		offered     string
		want, do    string
	}{
		{"room", 100 << 30, 50 << 30, "20Gi", "", ""},
		{"nearly full", 100 << 30, 9 << 30, "20Gi", "storage-disk-low warning", "liqo-agent storage reclaim"},
		{"more than it has", 100 << 30, 50 << 30, "200Gi", "storage-disk-small warning", "lower sharing.storage"},
		{"much more", 1 << 63, 1 << 63, "8Ei", "storage-disk-small warning", ""},
	} {
		checkFindings(t, tc.name, judgeVolumes(look.Disk{Bytes: tc.bytes, FreeBytes: tc.free}, "local-path", resource.MustParse(tc.offered)), tc.want, tc.do)
	}
}

func TestJudgeStorageClass(t *testing.T) {
	ours, older, foreign := classOf("liqo", workload.Provisioner, waits, false), classOf("older", workload.Provisioner, waits, false), classOf("liqo", "x", waits, false)
	liqo := "liqo"
	claims := []corev1.PersistentVolumeClaim{{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &liqo}}}
	somebody := []string{"83d0f353"}
	use := config.Sharing{StorageClass: "liqo", Use: true}
	for _, tc := range []struct {
		name     string
		there    storageThere
		cfg      config.Sharing
		want, do string
	}{
		{"nobody offers storage", storageThere{}, use, "", ""},
		{"somebody does", storageThere{classes: []*storageclass.Class{ours}, offerers: somebody}, use, "", ""},
		{"it is missing", storageThere{classes: []*storageclass.Class{older}, offerers: somebody}, use, "storage-class-missing warning, storage-class-stale warning", "sudo liqo-agent rbac --apply"},
		{"not wanted", storageThere{offerers: somebody}, config.Sharing{StorageClass: "liqo"}, "", ""},
		{"taken", storageThere{classes: []*storageclass.Class{foreign}, offerers: somebody}, use, "storage-class-taken warning", "set sharing.storage_class to another name"},
		{"somebody else's, and nobody offers", storageThere{classes: []*storageclass.Class{foreign}}, use, "", ""},
		{"stale", storageThere{classes: []*storageclass.Class{ours}}, use, "storage-class-stale warning", "kubectl delete storageclass liqo"},
		{"in use", storageThere{classes: []*storageclass.Class{ours}, claims: claims}, use, "", ""},
		{"of another name", storageThere{classes: []*storageclass.Class{ours, older}, offerers: somebody}, use, "storage-class-stale warning", "kubectl delete storageclass older"},
	} {
		checkFindings(t, tc.name, judgeStorageClass(tc.there, tc.cfg), tc.want, tc.do)
	}
}
