package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// walSegment replaces etcd's 64 MB write-ahead log segments, of which it preallocates two: a bed
// of several hosts keeps them in memory.
const walSegment = 4 << 20

// etcdCommand is a single-member etcd without TLS, for the loopback of a network namespace of its
// own. It does not sync to disk: what it holds need not outlive the bed.
func etcdCommand() *cobra.Command {
	var dir, client, peer, control string
	cmd := &cobra.Command{
		Use:           "etcd",
		Short:         "A single-member etcd that keeps nothing safe",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			return runEtcd(dir, client, peer, control)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "directory of the database")
	cmd.Flags().StringVar(&client, "listen-client", "http://127.0.0.1:2379", "URL for clients")
	cmd.Flags().StringVar(&peer, "listen-peer", "http://127.0.0.1:2380", "URL for other members, of which there are none")
	cmd.Flags().StringVar(&control, "listen-control", "127.0.0.1:2381", "address at which the store can be marked and reverted")
	return cmd
}

// runEtcd serves until SIGINT or SIGTERM, or until etcd gives up.
func runEtcd(dir, client, peer, control string) error {
	if dir == "" {
		return errors.New("etcd: --data-dir is needed")
	}
	clientURL, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("etcd: --listen-client: %w", err)
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return fmt.Errorf("etcd: --listen-peer: %w", err)
	}

	wal.SegmentSizeBytes = walSegment
	cfg := embed.NewConfig()
	cfg.Name = "bed"
	cfg.Dir = dir
	cfg.UnsafeNoFsync = true
	// Nobody has to notice soon that there is no leader.
	cfg.TickMs, cfg.ElectionMs = 500, 2500
	cfg.LogLevel = "warn"
	// Only the command-line parser of etcd itself has a default for this; 0 warns about every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	// A test's whole work is reverted in one transaction.
	cfg.MaxTxnOps, cfg.MaxRequestBytes = 1<<20, 256<<20

	stop := genericapiserver.SetupSignalHandler()
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd: start: %w", err)
	}
	defer member.Close()
	listener, err := net.Listen("tcp", control)
	if err != nil {
		return fmt.Errorf("etcd: --listen-control: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, &reverter{store: v3client.New(member.Server)}) }()
	select {
	case <-stop:
		return nil
	case err := <-failed:
		return fmt.Errorf("etcd: --listen-control: %w", err)
	case <-member.Server.StopNotify():
		return errors.New("etcd: stopped by itself")
	case err := <-member.Err():
		return fmt.Errorf("etcd: %w", err)
	}
}
