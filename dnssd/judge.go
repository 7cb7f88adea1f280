package dnssd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer/text"
)

// maxSkipped is how many left-out names a report lists one by one. Those that were
// instances before are listed beyond it.
const maxSkipped = 200

// rank orders the outcomes that are not conclusive; the greatest is the worst.
func rank(o resolver.Outcome) int {
	return 1 + slices.Index([]resolver.Outcome{
		resolver.BadAnswer, resolver.Refused, resolver.ServerFailure, resolver.Timeout, resolver.Unreachable,
	}, o)
}

// judge says what came of a look: own are the lists of the domain itself, of which the
// first counts most, further those of the domains that browsed names.
func judge(r *Report, own, further []list, browsed list) {
	var (
		found, named bool   // somebody is listed; a name exists
		sure         = true // the domain's own lists are known
		worst        *list
		open         []string
	)
	for i, l := range slices.Concat(own, further) {
		switch {
		case l.outcome == resolver.Found:
			found, named = true, true
		case l.outcome == resolver.NoData:
			named = true
		case !l.outcome.Conclusive():
			if worst == nil || rank(l.outcome) > rank(worst.outcome) {
				worst = &l
			}
			sure = sure && i >= len(own)
			open = append(open, l.name)
		}
	}
	if !browsed.outcome.Conclusive() {
		open = append(open, browsed.name)
	}
	r.Complete = found || sure
	for _, l := range slices.Concat(own, further, []list{browsed}) {
		if l.server != "" {
			r.Server = l.server
			break
		}
	}
	switch {
	case found:
		r.Outcome = resolver.Found
		r.Message = whatIsThere(r)
	case worst != nil:
		r.Outcome = worst.outcome
		r.Message = worst.message
		open = slices.DeleteFunc(open, func(name string) bool { return name == worst.name })
	case named:
		r.Outcome = resolver.NoData
		r.Message = fmt.Sprintf("no cluster is listed: neither %s nor %s has PTR records", text.Excerpt(own[0].name), text.Excerpt(own[1].name))
	default:
		r.Outcome = resolver.NoName
		r.Message = fmt.Sprintf("%s does not exist", text.Excerpt(own[0].name))
	}
	if len(open) > 0 {
		r.Message += fmt.Sprintf("; not answered: %s PTR", text.Excerpt(open[0]))
		if more := len(open) - 1; more > 0 {
			r.Message += fmt.Sprintf(" and %s", count(more, "other list", "other lists"))
		}
	}
	r.Message = text.Sentence(r.Message)
}

func whatIsThere(r *Report) string {
	stale := 0
	for _, i := range r.Instances {
		if i.Stale != "" {
			stale++
		}
	}
	message := count(len(r.Instances), "cluster is listed", "clusters are listed")
	if stale > 0 {
		message += fmt.Sprintf(", %d of them as known before", stale)
	}
	if n := len(r.Skipped); n > 0 {
		message += fmt.Sprintf("; left out: %s (%s)", text.Excerpt(r.Skipped[0].Name), r.Skipped[0].Reason)
		if n > 1 {
			message += " and more"
		}
	}
	return message
}

// leftOut orders what is left out and sums up what is too much for a report.
func (l *look) leftOut(skips []Skip, tooMany []string) []Skip {
	before := func(s Skip) int {
		if _, known := l.memory.instances[s.Name]; known {
			return 0
		}
		return 1
	}
	slices.SortFunc(skips, func(a, b Skip) int { return cmp.Or(cmp.Compare(before(a), before(b)), cmp.Compare(a.Name, b.Name)) })
	room := 0
	for room < len(skips) && (room < maxSkipped || before(skips[room]) == 0) {
		room++
	}
	rest := skips[room:]
	skips = slices.Clone(skips[:room])
	slices.SortFunc(skips, func(a, b Skip) int { return cmp.Compare(a.Name, b.Name) })

	sums := make(map[SkipReason][]string)
	for _, s := range rest {
		sums[s.Reason] = append(sums[s.Reason], s.Name)
	}
	for _, reason := range []SkipReason{SkipNoService, SkipNotAvailable, SkipNoAddress, SkipBadTXT, SkipLookup} {
		if names := sums[reason]; len(names) > 0 {
			skips = append(skips, Skip{l.domain.Name, reason, text.Sentence(fmt.Sprintf("%s for the same reason, such as %s", count(len(names), "more name", "more names"), text.Excerpt(slices.Min(names))))})
		}
	}
	if len(tooMany) > 0 {
		skips = append(skips, Skip{l.domain.Name, SkipTooMany, text.Sentence(fmt.Sprintf("%s beyond the %d that are looked at, such as %s", count(len(tooMany), "name is listed", "names are listed"), l.limit, text.Excerpt(slices.Min(tooMany))))})
	}
	if l.ignored > 0 {
		skips = append(skips, Skip{below(browse, l.domain.Name), SkipTooMany, fmt.Sprintf("%s beyond the %d that are looked at", count(l.ignored, "further domain is named", "further domains are named"), maxDomains)})
	}
	return skips
}

// withDefaults returns the domain in its canonical form, with intervals that can be
// worked with.
func withDefaults(d Domain) Domain {
	if name, ok := canonical(strings.TrimSuffix(d.Name, ".")); ok {
		d.Name = name
	}
	if d.MinInterval <= 0 {
		d.MinInterval = defaultMinInterval
	}
	if d.MaxInterval <= 0 {
		d.MaxInterval = defaultMaxInterval
	}
	d.MaxInterval = max(d.MinInterval, d.MaxInterval)
	return d
}
