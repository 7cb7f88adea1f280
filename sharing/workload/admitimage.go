package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/registry"
)

// maxQuotedImage is how much of an image's name is quoted, in bytes.
const maxQuotedImage = 200

// admitImages checks the registries of the images of a pod, also of image volumes, and sets
// the pull policy of each to Always unless in.LocalImages.
func admitImages(spec *corev1.PodSpec, in Guest) *Refusal {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			if r := admitImage(fmt.Sprintf("Container %q", text.Line(c.Name, 63)), c.Image, in); r != nil {
				return r
			}
			if !in.LocalImages {
				c.ImagePullPolicy = corev1.PullAlways
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		if r := admitImage(fmt.Sprintf("Volume %q", text.Line(v.Name, 63)), v.Image.Reference, in); r != nil {
			return r
		}
		pulled := *v.Image // shared with the decoded document
		if !in.LocalImages {
			pulled.PullPolicy = corev1.PullAlways
		}
		v.Image = &pulled
	}
	return nil
}

func admitImage(who, image string, in Guest) *Refusal {
	from, err := registry.Of(image)
	if err != nil {
		return invalid("%s has the image %q, which is not a valid name (%s): use one such as ghcr.io/team/app:1.", who, text.Line(image, maxQuotedImage), text.Line(err.Error(), 2*maxQuotedImage))
	}
	if in.Registries.Allows(from) {
		return nil
	}
	r := &Refusal{Reason: ReasonRegistryNotAllowed}
	if err := registry.Public(from); err != nil {
		r.Message = fmt.Sprintf("%s has an image from %q, which guests may never use, because %v: use a registry with a name in the public DNS.",
			who, text.Line(from, maxQuotedImage), err)
		return r
	}
	r.Message = fmt.Sprintf("%s has an image from %s, and guests of this cluster may not have images from there: use another registry, or let the provider add this one to its sharing.registries.",
		who, text.Line(from, maxQuotedImage))
	return r
}
