package throttle

import (
	"strconv"
	"time"
)

// RetryAfter returns how long a Retry-After header asks to wait (RFC 9110 section
// 10.2.3), 0 when it does not. A date there is not looked at: clocks differ.
func RetryAfter(header string) time.Duration {
	seconds, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
