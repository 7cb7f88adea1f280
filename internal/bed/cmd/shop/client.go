//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// ask makes count requests of each URL, each with a connection of its own, and prints a line of each: what was answered, after
// the URL if there are several. It fails with the first that is not answered.
func ask(ctx context.Context, urls []string, count int) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience / 2}
	for _, url := range urls {
		for range count {
			answer, err := fetch(ctx, client, url)
			if err != nil {
				return err
			}
			if len(urls) > 1 {
				answer = url + "\t" + answer
			}
			fmt.Println(answer)
		}
	}
	return nil
}

func fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	answer := strings.TrimSpace(string(body))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, err
}

// look prints a line for each name: the name, and what DNS has for it.
func look(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make([]string, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			records, err := lookUp(ctx, name)
			var known *net.DNSError
			switch {
			case errors.As(err, &known) && known.IsNotFound:
				records = []string{"none"}
			case err != nil:
				records = []string{err.Error()}
			}
			slices.Sort(records)
			found[i] = strings.Join(records, " ")
		})
	}
	group.Wait()
	for i, name := range names {
		fmt.Printf("%s\t%s\n", name, found[i])
	}
}

func lookUp(ctx context.Context, name string) ([]string, error) {
	var out []string
	if strings.HasPrefix(name, "_") {
		_, targets, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
		for _, t := range targets {
			out = append(out, fmt.Sprintf("%s:%d", t.Target, t.Port))
		}
		return out, err
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return net.DefaultResolver.LookupAddr(ctx, name)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for _, a := range addrs {
		out = append(out, a.Unmap().String())
	}
	return out, err
}
