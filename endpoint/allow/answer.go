package allow

// How large answers may be.
const (
	// MaxObjectAnswer is how many bytes one object may have.
	MaxObjectAnswer = 4 << 20
	// MaxListAnswer is how many a list may have, and a log that is not followed.
	MaxListAnswer = 64 << 20
)

// Limit is how many bytes an answer may have.
func (g Call) Limit() int64 {
	switch g.Answer {
	case OneAnswer:
		return MaxObjectAnswer
	case ListAnswer, TextAnswer:
		return MaxListAnswer
	}
	return 1<<63 - 1
}

// MediaType is that of an answer.
func (g Call) MediaType() string {
	if g.Answer == TextAnswer || g.Answer == Following {
		return "text/plain"
	}
	return "application/json"
}

// accepts is what the API server is told to answer with. For what is no object that is
// anything: what it says to a media type that it cannot make is that it is not acceptable.
func (g Call) accepts() string {
	switch g.Answer {
	case TextAnswer, Following, Upgrading:
		return "application/json, */*"
	}
	return "application/json"
}
