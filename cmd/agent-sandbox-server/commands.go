package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// commandOptions say which named commands there are and how they run.
type commandOptions struct {
	items    list
	attached descriptors
	python   string
	threads  int
	timeout  time.Duration // 0 is none
}

// descriptors is the option --attached: alone, or with the two descriptors to
// read from and to write to.
type descriptors struct {
	set         bool
	read, write int
}

// IsBoolFlag lets the option stand alone.
func (d *descriptors) IsBoolFlag() bool { return true }

func (d *descriptors) String() string { return "" }

func (d *descriptors) Set(s string) error {
	*d = descriptors{true, 3, 4}
	if s == "true" {
		return nil
	}
	read, write, _ := strings.Cut(s, ",")
	var err1, err2 error
	d.read, err1 = strconv.Atoi(read)
	d.write, err2 = strconv.Atoi(write)
	if err1 != nil || err2 != nil || d.read < 3 || d.write < 3 || d.read == d.write {
		return errors.New("expected two descriptors such as 3,4")
	}
	return nil
}

// open takes the pipes over.
func (d *descriptors) open() ([2]*os.File, error) {
	for _, fd := range []int{d.read, d.write} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			return [2]*os.File{}, fmt.Errorf("--attached: descriptor %d is no pipe", fd)
		}
	}
	return registry.Attached(d.read, d.write)
}

// loadCommands loads what --commands names or takes over the program that
// started us, and adopts what that says about the server.
func (s *server) loadCommands(ctx context.Context, procs *proc.Manager, vars *childenv.Store, workdir string) error {
	o := s.config.commands
	if len(o.items) == 0 && !o.attached.set {
		return nil
	}
	// The worker must not see what tokens are read from, so they are looked for
	// before the policy can be compiled; and it must not look into our memory.
	document, _, err := s.source.document()
	if err != nil {
		return err
	}
	s.conceal(document.TokenEnv())
	if err := undump(); err != nil {
		s.log.Warn(notConcealed, "err", err)
	}
	options := registry.Options{
		Items: o.items, Procs: procs, Env: vars, Workdir: workdir, Log: s.log, Python: o.python,
		Stdout: os.Stdout, Stderr: os.Stderr, Secret: s.secret, Threads: o.threads, Timeout: o.timeout, Version: version,
	}
	if o.attached.set {
		if options.Attached, err = o.attached.open(); err != nil {
			return &failure{"commands", err}
		}
	}
	commands, err := registry.Load(ctx, options)
	if err != nil {
		return &failure{"commands", err}
	}
	s.commands = commands
	s.closeLater("commands", commands.Close)
	vars.Watch(commands.SetEnv)
	s.source.codeGroups = commands.Groups()
	return s.takeStart(commands.Start())
}

// takeStart adopts what start() was called with where no option says
// otherwise.
func (s *server) takeStart(start *registry.Start) error {
	if start == nil {
		return nil
	}
	c := s.config
	var ignored []string
	port := func(option string, from *int, to *int) error {
		switch {
		case from == nil:
		case *from < 0 || *from > maxPort:
			return &failure{"configuration", fmt.Errorf("start(): %d is not a port from 0 to %d", *from, maxPort)}
		case !c.given[option]:
			*to = *from
		case *to != *from:
			ignored = append(ignored, option)
		}
		return nil
	}
	if err := port("port", start.Port, &c.port); err != nil {
		return err
	}
	if err := port("pty-port", start.PTYPort, &c.ptyPort); err != nil {
		return err
	}
	c.ptyNamed = c.ptyNamed || start.PTYPort != nil
	switch {
	case start.Host == nil:
	case !c.given["host"]:
		c.host = *start.Host
	case *start.Host != c.host:
		ignored = append(ignored, "host")
	}
	if start.Policy != nil {
		s.source.code = start.Policy
		if s.source.file != "" || s.source.preset != "" {
			ignored = append(ignored, "policy")
		}
	}
	if len(ignored) > 0 {
		s.log.Info("the command line goes before what start() was called with", "options", strings.Join(ignored, " "))
	}
	return nil
}

var errInterrupted = errors.New("told to stop while starting")

// startUnless starts the server, which may take as long as commands take to
// load, unless a signal says to stop.
func (p *program) startUnless(ctx context.Context, signals chan os.Signal, c *config) (*server, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan struct{})
	interrupted := make(chan os.Signal, 1)
	go func() {
		defer close(interrupted)
		for {
			select {
			case sig := <-signals:
				if sig != syscall.SIGHUP {
					interrupted <- sig
					cancel()
					return
				}
			case <-started:
				return
			}
		}
	}()
	s, err := p.start(ctx, c)
	close(started)
	if sig, ok := <-interrupted; ok {
		if err != nil {
			return nil, errInterrupted
		}
		signals <- sig // too late for the start: the server that runs takes it
	}
	return s, err
}

// tryCommands loads the commands of check-config as serve does and ends them
// again. What they print goes to stderr, since stdout is for the report.
func (p *program) tryCommands(ctx context.Context, o *checkOptions) (*registry.Registry, error) {
	if len(o.commands) == 0 {
		return nil, nil
	}
	document, _, err := o.source.document()
	if err != nil {
		return nil, err
	}
	procs, err := proc.New(proc.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = procs.Close(closing)
	}()
	commands, err := registry.Load(ctx, registry.Options{
		Items: o.commands, Procs: procs, Env: childenv.New(p.env), Workdir: workingDirectory(),
		Log: slog.New(slog.DiscardHandler), Python: o.source.env.get("ABX_COMMANDS_PYTHON"),
		Stdout: os.Stderr, Stderr: os.Stderr, Version: version,
		Secret: func(name string) bool { return holdsSecret(name, document.TokenEnv()) },
	})
	if err != nil {
		return nil, &failure{"commands", err}
	}
	o.source.codeGroups = commands.Groups()
	if start := commands.Start(); start != nil {
		o.source.code = start.Policy
	}
	return commands, commands.Close(ctx)
}

// tryLimit is how long check-config lets commands load.
const tryLimit = 10 * time.Minute
