package health

import (
	"strings"
	"time"
)

// Severity says how bad a problem is.
type Severity string

// The severities.
const (
	// Error: something does not work.
	Error Severity = "error"
	// Warning: something may not work tomorrow, or is not as safe as it should be.
	Warning Severity = "warning"
)

// rank orders severities, the worst first.
func (s Severity) rank() int {
	if s == Error {
		return 0
	}
	return 1
}

// Kind is one kind of problem, declared once. It is never changed.
type Kind struct {
	// Code names the kind for scripts, conditions and metrics: lower case with hyphens.
	// It is stable: a code is never used for something else.
	Code string
	// Severity says how bad it is.
	Severity Severity
	// Title says what is the matter in a few words, without arguments.
	Title string
	// Text says what is the matter, for people, and Remedy what to do about it. {name}
	// stands for the argument of that name.
	Text, Remedy string
	// Grace is how long it has to last until it is shown.
	Grace time.Duration
	// Doc says what it means and why it matters, in one or two sentences.
	Doc string
}

// Args are what a problem says besides the words of its Kind.
type Args map[string]string

// Reason returns the code as the reason of a Kubernetes condition: in CamelCase.
func (k *Kind) Reason() string { return Reason(k.Code) }

// Reason returns a code as the reason of a Kubernetes condition: "disk-full" is
// DiskFull.
func Reason(code string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(code, "-") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// fill puts arguments into a text. What has no argument stays as it is.
func fill(text string, args Args) string {
	if len(args) == 0 {
		return text
	}
	pairs := make([]string, 0, 2*len(args))
	for name, value := range args {
		pairs = append(pairs, "{"+name+"}", value)
	}
	// One pass over the text: what an argument contains is not looked at again.
	return strings.NewReplacer(pairs...).Replace(text)
}
