package host

import (
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

// GuestClass returns the storage class for guests' claims: that of a name (sharing.guest_storage_class), or the default one
// for "". The Refused says why there is none.
func GuestClass(name string, classes []*storageclass.Class) (*storageclass.Class, *Refused) {
	var class *storageclass.Class
	if name != "" {
		i := slices.IndexFunc(classes, func(c *storageclass.Class) bool { return c.Name == name })
		if i < 0 {
			return nil, refuse(ReasonNoStorage, "this cluster has no storage class %q, which sharing.guest_storage_class there names; correct it there", text.Excerpt(name))
		}
		class = classes[i]
	} else if class = storageclass.Default(classes); class == nil {
		return nil, refuse(ReasonNoStorage, "this cluster has no default storage class; set sharing.guest_storage_class there, or make a class the default one")
	}
	if class.Provisioner == workload.Provisioner {
		return nil, refuse(ReasonNoStorage, "the storage class for guests of this cluster, %s, keeps its data at peers of this cluster; set sharing.guest_storage_class there to another one", text.Excerpt(class.Name))
	}
	return class, nil
}

// ClassProblem returns why guests' claims cannot be kept as they should, given the name in sharing.guest_storage_class and all
// classes, in a sentence without its end; "" if they can.
func ClassProblem(name string, classes []*storageclass.Class) string {
	class, why := GuestClass(name, classes)
	switch {
	case why != nil:
		return strings.ReplaceAll(why.Message, " there", "")
	case class.VolumeBindingMode != storageclass.WaitForFirstConsumer:
		return fmt.Sprintf("the storage class %s does not wait for the first pod (volumeBindingMode %s), so data may be on a node where the pod does not fit; set sharing.guest_storage_class to another one",
			text.Excerpt(class.Name), text.Excerpt(class.VolumeBindingMode))
	}
	return ""
}
