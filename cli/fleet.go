package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// maxPEM bounds what is read of a key or certificate file.
const maxPEM = 1 << 20

func fleetCommand() command.Command {
	return command.Command{
		Name:  "fleet",
		Usage: "certify the keys of your devices, offline",
		About: "Run an offline certificate authority for a fleet of devices. A device with the fleet certificate\n" +
			"(trust.fleet_ca) trusts every device whose key the fleet certified. No agent is needed. Keep the\n" +
			"private key of the fleet off the devices.",
		Examples: []string{"liqo-agent fleet init --name 'Acme farms' --cert fleet.pem --key fleet.key",
			"liqo-agent fleet sign --ca fleet.pem --ca-key fleet.key --id 0558de48-097b-4b7d-ba04-6bd2a0f9d24f --public-key barn.pub.pem -o barn.pem"},
		Commands: []command.Command{
			fleetInitCommand(),
			fleetSignCommand(),
		},
	}
}

func fleetInitCommand() command.Command {
	return command.Command{
		Name:  "init",
		Usage: "create a fleet CA",
		About: "Create a fleet CA: a certificate for every device, and a private key that stays with you.\n" +
			"Existing files are not overwritten.",
		Examples: []string{"liqo-agent fleet init --name 'Acme farms' --cert fleet.pem --key fleet.key"},
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "name", Usage: "`NAME` of the fleet"},
			&urfave.IntFlag{Name: "years", Value: 10, Usage: "validity of the certificate in `YEARS`"},
			&urfave.StringFlag{Name: "cert", Usage: "`FILE` for the certificate"},
			&urfave.StringFlag{Name: "key", Usage: "`FILE` for the private key"},
		},
		Values: command.FileValues("cert", "key"),
		Run:    initFleet,
	}
}

func initFleet(c *command.Call) error {
	if err := need(c, "name", "cert", "key"); err != nil {
		return err
	}
	cert, key, err := trust.NewFleetCA(c.String("name"), c.Int("years"), c.Out.Now)
	if err != nil {
		return command.UsageError("fleet init: "+err.Error(), command.HelpOf("fleet init"))
	}
	// The key first: a certificate whose key was lost must not get on devices.
	if err := writeNew(c.String("key"), key, 0o600); err != nil {
		return err
	}
	if err := writeNew(c.String("cert"), cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(c.String("key")))
	}
	c.Out.Printf("Wrote %s: set trust.fleet_ca to it on every device.\nWrote %s: keep it secret.\n", render.Clean(c.String("cert")), render.Clean(c.String("key")))
	return nil
}

func fleetSignCommand() command.Command {
	return command.Command{
		Name:  "sign",
		Usage: "certify the key of a device",
		About: "Sign a certificate for the key and the cluster ID of a device. On the device, liqo-agent key\n" +
			"show --pem prints the public key, and liqo-agent info --get cluster.clusterId the ID. Copy the\n" +
			"certificate to the device as fleet.crt in its state directory, or set trust.fleet_certificate.",
		Examples: []string{"liqo-agent fleet sign --ca fleet.pem --ca-key fleet.key --id 0558de48-097b-4b7d-ba04-6bd2a0f9d24f --public-key barn.pub.pem -o barn.pem"},
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "ca", Usage: "`FILE` with the fleet certificate"},
			&urfave.StringFlag{Name: "ca-key", Usage: "`FILE` with the fleet's private key"},
			&urfave.StringFlag{Name: "id", Usage: "cluster `ID` of the device"},
			&urfave.StringFlag{Name: "public-key", Usage: "`FILE` with the device's public key; - reads standard input"},
			&urfave.IntFlag{Name: "days", Value: 1095, Usage: "validity of the certificate in `DAYS`"},
			&urfave.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FILE` for the certificate (default: standard output)"},
		},
		Values: command.FileValues("ca", "ca-key", "public-key", "out"),
		Run:    signFleet,
	}
}

func signFleet(c *command.Call) error {
	if err := need(c, "ca", "ca-key", "id", "public-key"); err != nil {
		return err
	}
	id, err := peer.ParseClusterID(c.String("id"))
	if err != nil {
		return command.UsageError("--id: "+err.Error(), "liqo-agent info --get cluster.clusterId")
	}
	var files [3][]byte
	for i, name := range []string{"ca", "ca-key", "public-key"} {
		if files[i], err = readFile(c, name); err != nil {
			return err
		}
	}
	cert, err := trust.SignFleet(files[0], files[1], id, files[2], c.Int("days"), c.Out.Now)
	if err != nil {
		return command.UsageError("fleet sign: "+err.Error(), command.HelpOf("fleet sign"))
	}
	path := c.String("out")
	if path == "" {
		c.Out.Write(cert)
		return nil
	}
	if err := writeNew(path, cert, 0o644); err != nil {
		return err
	}
	c.Out.Printf("Wrote %s\n", render.Clean(path))
	return nil
}

// need refuses a command line without options that have no sensible default.
func need(c *command.Call, options ...string) error {
	for _, name := range options {
		if c.String(name) == "" {
			return command.UsageError(fmt.Sprintf("%s needs --%s", c.Path(), name), command.HelpOf(c.Path()))
		}
	}
	return nil
}

// readFile reads the file that an option names; "-" is standard input for the
// one that need not be kept secret.
func readFile(c *command.Call, option string) ([]byte, error) {
	path := c.String(option)
	var in io.Reader
	if path == "-" && option == "public-key" {
		if in = c.Options.Stdin; in == nil {
			return nil, command.UsageError("--public-key -: standard input is empty", command.HelpOf(c.Path()))
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
		return &control.Error{Cause: err, Message: path + " already exists", Advice: "choose another name, or move the file away"}
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
