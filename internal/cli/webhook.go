// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/webhook"
)

const webhookLong = `Serve the planner to an admission proxy, such as the Nomad Admission Control Proxy,
so that jobs submitted through it by "nomad job run" are planned too. Endpoints:

  POST /v1/patch    with a JSON Patch, warnings and errors
  POST /v1/mutate   with the changed job
  GET  /healthz     with 200

If a job cannot be planned, or the table is unavailable, the job passes unchanged with
a warning; --on-failure=error rejects it. SIGINT and SIGTERM stop the server after the
requests in progress.`

// webhookFlags are the options of the service.
type webhookFlags struct {
	listen    string
	tokenFile string
	cert, key string
	onFailure string
	timeout   time.Duration
	maxBody   int64
}

func (f *webhookFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8946", "`address` to listen on")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the token that requests must bear")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate and its intermediates")
	flags.StringVar(&f.key, "tls-key", "", "`file` with the certificate's key")
	flags.StringVar(&f.onFailure, "on-failure", "warn", "answer for a job that cannot be planned: warn or error")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "time limit of one request")
	flags.Int64Var(&f.maxBody, "max-body", 4<<20, "size limit of a job, in `bytes`")
}

func (a App) newWebhook(table *tableFlags) *cobra.Command {
	flags, service := newPlannerFlags(table), &webhookFlags{}
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Plan jobs for an admission proxy",
		Long:  webhookLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, certificates, err := service.config()
			if err != nil {
				return usageError{err}
			}
			if config.Options, err = flags.options(); err != nil {
				return err
			}
			logger := hclog.New(&hclog.LoggerOptions{Name: "webhook", Output: cmd.ErrOrStderr(), Level: hclog.Info})
			site, err := a.openSite(flags)
			if err != nil {
				return err
			}
			defer site.Close()
			listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", service.listen)
			if err != nil {
				return err
			}
			logger.Info("listening", "address", listener.Addr().String(), "tls", certificates != nil, "token", config.Token != "")
			return flags.explain(serve(cmd.Context(), logger, listener, site.Site, config, certificates))
		},
	}
	flags.register(cmd.Flags())
	service.register(cmd.Flags())
	return cmd
}

func serve(ctx context.Context, logger hclog.Logger, listener net.Listener, site *live.Site, config webhook.Config, certificates *tls.Config) error {
	err := webhook.Serve(ctx, listener, webhook.New(logger, site, config), config.Timeout, certificates)
	logger.Info("stopped")
	return err
}

// config reads the files that the flags name.
func (f *webhookFlags) config() (webhook.Config, *tls.Config, error) {
	config := webhook.Config{Timeout: f.timeout, MaxBody: f.maxBody, Strict: f.onFailure == "error"}
	switch {
	case f.onFailure != "warn" && f.onFailure != "error":
		return config, nil, fmt.Errorf("--on-failure: invalid value %q, want warn or error", f.onFailure)
	case f.timeout <= 0 || f.maxBody <= 0:
		return config, nil, errors.New("--timeout and --max-body must be positive")
	case (f.cert == "") != (f.key == ""):
		return config, nil, errors.New("--tls-cert and --tls-key must be set together")
	}
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return config, nil, err
		}
		if config.Token = strings.TrimSpace(string(text)); config.Token == "" {
			return config, nil, fmt.Errorf("%s is empty", f.tokenFile)
		}
	}
	if f.cert == "" {
		return config, nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return config, nil, err
	}
	return config, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
