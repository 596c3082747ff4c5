package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/telemetry"
)

// configRead describes the last reading of the configuration.
type configRead struct {
	at  time.Time // the last time without an error
	err error     // of the last time; nil: none
}

// rereading is what came of reading the configuration again.
type rereading struct {
	changes []string
	err     error
}

// readAgain has serve's loop read the configuration again.
func (s *server) readAgain(ctx context.Context) ([]string, error) {
	answer := make(chan rereading, 1)
	select {
	case s.again <- answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	r := <-answer
	return r.changes, r.err
}

// load reads the configuration, and checks that the files that it names can be read.
func (c *serveCommand) load() (*config.Config, error) {
	cfg, err := config.LoadWith(c.File, c.Overrides)
	if err == nil {
		err = cfg.CheckFiles()
	}
	return cfg, err
}

// reload reads the file again and applies it to s. It returns the configuration
// that s then runs with: the old one if the new one cannot be used.
func (c *serveCommand) reload(log *slog.Logger, s *server, running *config.Config, settings *telemetry.LogSettings) (*config.Config, rereading) {
	if c.File == "" { // nothing is wrong: it runs with what it was started with
		err := errors.New("there is no configuration file, only flags and variables: to change them, start it again")
		log.Warn("not reloaded", slog.Any("error", err))
		return running, rereading{err: err}
	}
	next, changes, err := c.reread(log, s, running, settings)
	if err != nil {
		s.read.Store(&configRead{at: s.read.Load().at, err: err})
		notReloaded(log, err)
		return running, rereading{err: err}
	}
	s.read.Store(&configRead{at: time.Now()})
	var told rereading
	for _, change := range changes {
		told.changes = append(told.changes, fmt.Sprintf("%s: %s -> %s (%s)", change.Key, change.Old, change.New, change.Effect))
	}
	return next, told
}

func (c *serveCommand) reread(log *slog.Logger, s *server, running *config.Config, settings *telemetry.LogSettings) (*config.Config, []config.Change, error) {
	log = log.With(slog.String("file", c.File))
	read, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	next, changes := running.Reload(read)
	// Even without changes: the files that it names may have changed.
	if err := s.follow(next); err != nil {
		return nil, nil, err
	}
	if err := settings.Set(next.Log.Level, next.Log.Format); err != nil {
		return nil, nil, err // never: the words have been checked with the file
	}
	for _, change := range changes {
		logChange(log, change)
	}
	log.Info("reloaded", slog.Int("changes", len(changes)))
	return next, changes, nil
}

// notReloaded logs everything that is wrong with a new configuration.
func notReloaded(log *slog.Logger, err error) {
	wrong := config.Lines(err)
	for _, line := range wrong {
		log.Error("error in the configuration", slog.String("error", line))
	}
	log.Error("not reloaded: the configuration has errors, and the old one stays", slog.Int("errors", len(wrong)))
}

func logChange(log *slog.Logger, change config.Change) {
	attrs := []any{slog.String("key", change.Key), slog.String("old", change.Old), slog.String("new", change.New)}
	switch change.Effect {
	case config.EffectRestart:
		log.Warn("configuration changed: needs a restart", attrs...)
	case config.EffectNewPool:
		log.Warn("configuration changed: applies only to pools that are new in the cluster; kgate pool set changes k", attrs...)
	case config.EffectReload:
		log.Info("configuration changed", attrs...)
	}
}

// follow applies cfg to requests that arrive from now on. Those that wait keep their
// places, those in flight their connections. On an error nothing has changed.
func (s *server) follow(cfg *config.Config) error {
	next, err := s.nodeConfig(cfg)
	if err != nil {
		return err
	}
	upstreams := s.upstreams.keep(next.Pools)
	useCertificates := func() {}
	if s.certificates != nil && cfg.Listen.TLS.Enabled() {
		if useCertificates, err = s.certificates.Read(certificateFiles(cfg.Listen.TLS)); err != nil {
			return err
		}
	}
	if err := s.node.Reload(next); err != nil {
		return err
	}
	useCertificates()
	s.upstreams = upstreams
	return nil
}
