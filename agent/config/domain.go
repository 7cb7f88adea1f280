package config

import (
	"fmt"
)

// CheckSearchDomain returns the search domain in the form in which those of the
// file are kept. An interval that is 0 gets its default, or the other interval
// where that would not go with it. The error says what is wrong, as for the file,
// and names the key.
func CheckSearchDomain(d SearchDomain) (SearchDomain, error) {
	if d.MinInterval == 0 {
		d.MinInterval = defaultMinInterval
		if d.MaxInterval >= shortestInterval {
			d.MinInterval = min(d.MinInterval, d.MaxInterval)
		}
	}
	if d.MaxInterval == 0 {
		d.MaxInterval = max(defaultMaxInterval, d.MinInterval)
	}
	for _, s := range searchDomainSettings {
		field := s.field(&d)
		assign(field, s.rule.normalise(value(field)))
		if err := s.rule.accepts(value(field)); err != nil {
			return SearchDomain{}, fmt.Errorf("%s %w", s.key, badValue(value(field), err))
		}
	}
	if key, err := intervals(d, func(string) bool { return true }); err != nil {
		return SearchDomain{}, fmt.Errorf("%s %w", key, err)
	}
	return d, nil
}

// intervals checks that those of a search domain go together. The key that it
// names is one that was given.
func intervals(d SearchDomain, given func(key string) bool) (string, error) {
	if d.MaxInterval >= d.MinInterval {
		return "", nil
	}
	if given("max_interval") {
		return "max_interval", badValue(d.MaxInterval, fmt.Errorf("must not be shorter than min_interval, which is %s", formatDuration(d.MinInterval)))
	}
	return "min_interval", badValue(d.MinInterval, fmt.Errorf("must not be longer than max_interval, which is %s", formatDuration(d.MaxInterval)))
}
