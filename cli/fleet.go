package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// maxPEM bounds what is read of a key or certificate file.
const maxPEM = 1 << 20

func (a *App) fleetCommand() *urfave.Command {
	return a.branch("fleet", "certify the keys of your devices, offline",
		"Be the authority of a fleet: devices that are given its certificate (trust.fleet_ca in the\n"+
			"configuration) trust every device whose key it certified. No agent is needed for this; keep the\n"+
			"key of the authority off the devices.",
		[]string{"liqo-agent fleet init --name 'Acme farms' --cert fleet.pem --key fleet.key",
			"liqo-agent fleet sign --ca fleet.pem --ca-key fleet.key --id 0558de48-097b-4b7d-ba04-6bd2a0f9d24f --public-key barn.pub.pem -o barn.pem"},
		a.fleetInitCommand(), a.fleetSignCommand())
}

func (a *App) fleetInitCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "init",
		usage:    "make the authority of a new fleet",
		about:    "Make the authority of a new fleet: a certificate, which every device is given, and its key, which\nstays with you. Files that exist are not overwritten.",
		examples: []string{"liqo-agent fleet init --name 'Acme farms' --cert fleet.pem --key fleet.key"},
		flags: []urfave.Flag{
			&urfave.StringFlag{Name: "name", Usage: "what the fleet is called: a `NAME` for people"},
			&urfave.IntFlag{Name: "years", Value: 10, Usage: "how many `YEARS` the certificate is valid"},
			&urfave.StringFlag{Name: "cert", Usage: "`FILE` for the certificate"},
			&urfave.StringFlag{Name: "key", Usage: "`FILE` for the key"},
		},
		values: fileValues("cert", "key"),
		run:    initFleet,
	})
}

func initFleet(c *call) error {
	if err := c.need("name", "cert", "key"); err != nil {
		return err
	}
	cert, key, err := trust.NewFleetCA(c.String("name"), c.Int("years"), c.out.now)
	if err != nil {
		return &usageError{message: "fleet init: " + err.Error(), try: helpOf("fleet init")}
	}
	// The key first: a certificate whose key was lost must not get on devices.
	if err := writeNew(c.String("key"), key, 0o600); err != nil {
		return err
	}
	if err := writeNew(c.String("cert"), cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(c.String("key")))
	}
	c.out.printf("Wrote %s, for trust.fleet_ca on every device, and %s, which has to stay secret.\n", clean(c.String("cert")), clean(c.String("key")))
	return nil
}

func (a *App) fleetSignCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "sign",
		usage: "certify the key of a device",
		about: "Certify that a key is that of a cluster ID. On the device, liqo-agent key show --pem prints its\n" +
			"public key, '-' reads it from standard input; liqo-agent info --get cluster.clusterId prints its\n" +
			"ID. Put the certificate on the device as fleet.crt in its state directory, or name it in\n" +
			"trust.fleet_certificate.",
		examples: []string{"liqo-agent fleet sign --ca fleet.pem --ca-key fleet.key --id 0558de48-097b-4b7d-ba04-6bd2a0f9d24f --public-key barn.pub.pem -o barn.pem"},
		flags: []urfave.Flag{
			&urfave.StringFlag{Name: "ca", Usage: "`FILE` with the certificate of the fleet"},
			&urfave.StringFlag{Name: "ca-key", Usage: "`FILE` with the key of the fleet"},
			&urfave.StringFlag{Name: "id", Usage: "cluster `ID` of the device"},
			&urfave.StringFlag{Name: "public-key", Usage: "`FILE` with the public key of the device; - reads it from standard input"},
			&urfave.IntFlag{Name: "days", Value: 1095, Usage: "how many `DAYS` it is valid"},
			&urfave.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FILE` for the certificate; without it, standard output"},
		},
		values: fileValues("ca", "ca-key", "public-key", "out"),
		run:    signFleet,
	})
}

func signFleet(c *call) error {
	if err := c.need("ca", "ca-key", "id", "public-key"); err != nil {
		return err
	}
	id, err := peer.ParseClusterID(c.String("id"))
	if err != nil {
		return &usageError{message: "--id: " + err.Error(), try: "liqo-agent info --get cluster.clusterId"}
	}
	var files [3][]byte
	for i, name := range []string{"ca", "ca-key", "public-key"} {
		if files[i], err = c.readFile(name); err != nil {
			return err
		}
	}
	cert, err := trust.SignFleet(files[0], files[1], id, files[2], c.Int("days"), c.out.now)
	if err != nil {
		return &usageError{message: "fleet sign: " + err.Error(), try: helpOf("fleet sign")}
	}
	path := c.String("out")
	if path == "" {
		c.out.write(cert)
		return nil
	}
	if err := writeNew(path, cert, 0o644); err != nil {
		return err
	}
	c.out.printf("Wrote %s\n", clean(path))
	return nil
}

// need refuses a command line without options that have no sensible default.
func (c *call) need(options ...string) error {
	for _, name := range options {
		if c.String(name) == "" {
			return &usageError{message: fmt.Sprintf("%s needs --%s", pathOf(c.Context), name), try: helpOf(pathOf(c.Context))}
		}
	}
	return nil
}

// readFile reads the file that an option names; "-" is standard input for the
// one that need not be kept secret.
func (c *call) readFile(option string) ([]byte, error) {
	path := c.String(option)
	var in io.Reader
	if path == "-" && option == "public-key" {
		if in = c.app.opts.Stdin; in == nil {
			return nil, &usageError{message: "--public-key -: there is nothing on standard input", try: helpOf(pathOf(c.Context))}
		}
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", option, err)
		}
		defer func() { _ = f.Close() }() // read only: nothing is lost
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxPEM))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", option, err)
	}
	return raw, nil
}

// writeNew writes a file that does not exist yet, completely or not at all.
func writeNew(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return &control.Error{Cause: err, Message: path + " exists already", Advice: "choose another name, or move it away"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}
