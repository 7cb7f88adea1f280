// Package volumes keeps the data of this cluster's claims where their pods run: it provisions and
// expands the PersistentVolumeClaims of the agent's storage class.
//
// The first pod that uses a claim decides where its data is: the scheduler chooses a node, and
// says so on the claim. If that is the virtual node of a provider, a copy of the claim is made
// in the provider's namespace for ours, and a PersistentVolume here stands for it, with an
// affinity to that node. It is of the kind local: nothing attaches it, and no kubelet of this
// cluster mounts it, as no node of this cluster has its label. A pod that mounts the claim is
// bound to the virtual node, and sharing/offload has its copy mount the copy of the claim.
//
// While a claim may be at a provider and has no volume yet, it has a finalizer, and an
// annotation that names the provider. From then on the volume has a finalizer. So there is
// always an object here that remembers the copy, and whoever is killed between two requests
// goes on where it was. The copy is deleted if and only if the claim was deleted and the
// volume has the reclaim policy Delete. Nothing is deleted because something cannot be read,
// or because a peering ended.
//
// If the scheduler chooses a node of this cluster, a second claim, of this cluster's default class,
// stands behind the first until it has a volume, which is then handed over; see [handover]. After
// that the agent has nothing to do with it.
//
// A claim grows by what its provider has counted and given. Of what a provider says, a claim shows
// never more than it asks for, and never less than before.
//
// Names of copies have a part of the claim's UID in them: data of one claim is never taken
// for that of another of the same name.
//
// The storage class exists while a provider offers storage, or there are claims of it. Its
// allowedTopologies are the nodes where claims can be.
//
// It must not decide who is a provider, and knows nothing of pods.
//
// Goroutines: [Volumes.Run] has one for each cache, and some workers. All have ended when it
// returns. Everything else may be called from any goroutine, and does not block unless it
// takes a context.
package volumes
