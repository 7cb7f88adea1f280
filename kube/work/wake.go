package work

// Wake sends to a channel of capacity 1, unless an element is waiting there: whoever
// receives looks at everything anew, so one is enough. It never blocks.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
