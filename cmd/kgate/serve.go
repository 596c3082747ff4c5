package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/telemetry"
)

// logPatience bounds how long the end of the process waits for the log's reader.
const logPatience = 2 * time.Second

// serveCommand runs a gateway.
type serveCommand struct {
	File string `name:"config" short:"c" env:"KGATE_CONFIG" placeholder:"FILE" help:"Configuration file (YAML). With --upstream and --k none is needed."`
	config.Overrides
}

func (serveCommand) Help() string {
	return `Examples:
  kgate serve --upstream http://127.0.0.1:9000 --k 3
  kgate serve -c /etc/kgate/kgate.yaml
  kgate serve -c kgate.yaml --join 10.0.0.2:7080

Flags and their environment variables override the file.
SIGHUP reads the file again: see docs/configuration.md for what it changes.
SIGTERM and SIGINT shut the gateway down in order: waiting requests are refused
with 503, those in flight finish, for at most drain.timeout. A second signal ends
the process at once.

Exit codes: 0 ended by a signal, 1 cannot run or the file is wrong, 2 wrong
command line.`
}

// Run serves until a signal comes.
func (c *serveCommand) Run(std streams, misspelt misspelt) error {
	cfg, err := c.load()
	switch {
	case config.FromFlags(err):
		return usageError("%w", err)
	case err != nil:
		return err
	}
	lines := telemetry.NewQueued(std.err)
	defer lines.Close(logPatience) // before an error is printed
	log, settings, err := telemetry.NewLogger(lines, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	raiseHeapFloor()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP) // from now on it must not end the process
	defer signal.Stop(again)
	stop, cancel := untilSignal()
	defer cancel()
	sockets, err := inheritedSockets()
	if err != nil {
		return err
	}
	log = log.With(slog.String("gateway", cfg.Node.Name))
	s, err := startServer(cfg, log, sockets)
	if err != nil {
		return err
	}
	s.metrics.CountDropped(telemetry.LogProcess, lines)
	for _, text := range misspelt {
		log.Warn("unknown environment variable", slog.String("text", text))
	}
	s.wg.Go(func() { s.supervise(s.ctx) })
	for running := true; running; {
		select {
		case <-again:
			done := notifyReloading()
			cfg, _ = c.reload(log, s, cfg, settings)
			done()
		case answer := <-s.again:
			var told rereading
			cfg, told = c.reload(log, s, cfg, settings)
			answer <- told
		case <-stop.Done():
			running = false
		case <-s.leave:
			running = false
		case err := <-s.failed:
			return s.giveUp(err)
		case <-s.node.Done(): // it has logged why
			_ = s.close()
			return &codedError{code: exitFailure}
		}
	}
	cancel() // a second signal ends the process at once
	ctx, done := context.WithTimeout(context.Background(), s.beginDrain(cfg))
	defer done()
	return s.shutdown(ctx)
}

// beginDrain says that the gateway stops, and returns how long requests in flight may take.
func (s *server) beginDrain(cfg *config.Config) time.Duration {
	timeout := cfg.DrainTimeout()
	s.log.Info("stopping: requests in flight may finish", slog.String("drain_timeout", timeout.String()))
	notifyStopping(timeout)
	return timeout
}

// giveUp ends a gateway that cannot go on.
func (s *server) giveUp(why error) error {
	// An operator who reads the log must find the reason there.
	s.log.Error("the gateway cannot go on", slog.Any("error", errors.Join(why, s.close())))
	return &codedError{code: exitFailure}
}
