package command

import (
	"fmt"
	"strings"
)

func ExampleReport() {
	var b strings.Builder
	code := Report(&b, &Error{Message: "it takes long", Advice: "wait", Code: ExitTimeout})
	fmt.Println(code, b.String())
	// Output:
	// 7 liqo-agent: it takes long
	// try: wait
}
