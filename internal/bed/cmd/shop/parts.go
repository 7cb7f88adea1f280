//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keep counts until ctx ends. Of Redis' protocol it knows "INCR key" on a line, which Redis understands, too.
func keep(ctx context.Context) error {
	listener, err := net.Listen("tcp", storePort)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var mu sync.Mutex
	counters := make(map[string]int)
	for {
		c, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for in := bufio.NewScanner(c); in.Scan(); {
				words := strings.Fields(in.Text())
				if len(words) != 2 || !strings.EqualFold(words[0], "INCR") {
					_, _ = io.WriteString(c, "-ERR only INCR is known\r\n")
					return
				}
				mu.Lock()
				counters[words[1]]++
				n := counters[words[1]]
				mu.Unlock()
				if _, err := fmt.Fprintf(c, ":%d\r\n", n); err != nil {
					return
				}
			}
		}()
	}
}

// serve answers HTTP requests until ctx ends, as NODE in the environment says where it runs. Without a store it counts nothing.
func serve(ctx context.Context, store string) error {
	who, err := os.Hostname()
	if err != nil {
		return err
	}
	if node := os.Getenv("NODE"); node != "" {
		who += " on " + node
	}
	server := &http.Server{Addr: webPort, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if store == "" {
			_, _ = fmt.Fprintf(w, "answered by %s\n", who)
			return
		}
		n, err := increment(r.Context(), store)
		if err != nil {
			http.Error(w, fmt.Sprintf("%s: the store does not answer: %v", who, err), http.StatusBadGateway)
			return
		}
		_, _ = fmt.Fprintf(w, "visit %d, answered by %s\n", n, who)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// increment counts a visit in the store.
func increment(ctx context.Context, store string) (int, error) {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", store)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "INCR visits\r\n"); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.Trim(line, ":\r\n"))
}
