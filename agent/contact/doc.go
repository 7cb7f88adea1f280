// Package contact asks the places where clusters are said to be who is there, and
// hands what it finds to the recorder as sightings.
//
// A lead is such a place: an entry of a search domain, or a URL that the
// configuration or a person gave. One that names both the cluster and its key
// becomes a sighting at once, because the recorder checks it. Of any other the
// endpoint is asked, and its answer is the sighting. A URL that a person gave is
// asked in any case, so that the person can be told what is wrong with it.
//
// Who is at a place may change. An answering one is asked again every ten minutes,
// and soon when the recorder no longer sees the cluster that it led to; one that
// leads nowhere is asked again after five seconds, doubling up to five minutes.
// What was found stays until somebody else answers there: whether a cluster that
// does not answer is gone, the recorder decides.
//
// Places come from DNS, so there may be thousands of them that take as long to
// answer as they can. The attempts at one time are bounded. What persons gave goes
// first; neither that nor what domains list can hold all of them; and domains get
// them in turn, so that none waits for what another lists.
//
// The package trusts nobody and decides nothing: it must not look at who is
// trusted, nor write to disk, nor resolve or dial by itself.
//
// Goroutines: Run owns all leads, and starts one goroutine for each attempt, all
// ended when it returns. Readers get immutable snapshots.
package contact
