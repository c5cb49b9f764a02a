package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// row is one figure: what to do, on whom, and what we aim at.
type row struct {
	name string
	unit unit
	goal goal

	// rounds is how often each is measured, 0 for the default of the run.
	rounds int

	// sample does the job on a running server and returns one figure or more.
	sample func(context.Context, *bench, *server) ([]float64, error)

	// fresh does the job on a server it starts itself; used instead of sample.
	fresh func(context.Context, *bench, program) ([]float64, error)

	// limit does the job, or its hard core, with the least code there could be; may be nil.
	limit func(context.Context, *bench) ([]float64, error)
}

// figure is the median of what was measured of one of the three, or why there is none.
type figure struct {
	value float64
	err   error
}

// failure is an error that the run should end with: a route that is not served is none.
func (f figure) failure(row string) error {
	if f.err == nil || errors.Is(f.err, errNotServed) {
		return nil
	}
	return fmt.Errorf("%s: %w", row, f.err)
}

type result struct {
	row
	published, ours, least figure
}

// bench holds the servers that live for the whole run.
type bench struct {
	dir                     string
	rounds                  int
	publishedProg, oursProg program // without a policy, for rows that start their own
	bareProg                program
	python                  string // has the published package
	published, ours, bare   *server
	transferer              *transferer
}

func open(ctx context.Context, o options, dir string) (_ *bench, err error) {
	b := &bench{
		dir: dir, rounds: o.rounds, python: o.python,
		publishedProg: sandboxServer("published", o.published, dir),
		oursProg:      sandboxServer("ours", o.ours, dir),
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	raised := "ABX_SERVER_POLICY=" + policyText
	if b.published, err = start(ctx, sandboxServer("published", o.published, dir, raised)); err != nil {
		return nil, err
	}
	if b.ours, err = start(ctx, sandboxServer("ours", o.ours, dir, raised)); err != nil {
		return nil, err
	}
	b.bareProg = program{name: "bare", args: func(port, _ int) []string {
		return []string{o.bare, "-port", fmt.Sprint(port), "-root", dir}
	}}
	if b.bare, err = start(ctx, b.bareProg); err != nil {
		return nil, err
	}
	b.transferer, err = startTransferer(ctx, o.python)
	return b, err
}

func (b *bench) close() {
	for _, s := range []*server{b.published, b.ours, b.bare} {
		if s != nil {
			s.stop()
		}
	}
	if b.transferer != nil {
		b.transferer.close()
	}
}

func (b *bench) path(name ...string) string {
	return filepath.Join(append([]string{b.dir}, name...)...)
}

// measure takes the published server, ours and the limit in turn, round by round.
func (b *bench) measure(ctx context.Context, r row) result {
	on := func(s *server, p program) func() ([]float64, error) {
		if r.fresh != nil {
			return func() ([]float64, error) { return r.fresh(ctx, b, p) }
		}
		return func() ([]float64, error) { return r.sample(ctx, b, s) }
	}
	takes := []func() ([]float64, error){on(b.published, b.publishedProg), on(b.ours, b.oursProg), nil}
	if r.limit != nil {
		takes[2] = func() ([]float64, error) { return r.limit(ctx, b) }
	}

	rounds := b.rounds
	if r.rounds > 0 {
		rounds = min(rounds, r.rounds)
	}
	var values [3][]float64
	var failed [3]error
	for range rounds {
		for i, take := range takes {
			if take == nil || failed[i] != nil {
				continue
			}
			got, err := take()
			values[i], failed[i] = append(values[i], got...), err
		}
	}
	figures := [3]figure{}
	for i := range figures {
		figures[i] = figure{median(values[i]), failed[i]}
		if takes[i] == nil {
			figures[i].err = errNoLimit
		}
	}
	return result{row: r, published: figures[0], ours: figures[1], least: figures[2]}
}

// errNoLimit marks a row that has no bare counterpart.
var errNoLimit = errors.New("no limit")

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}

// each runs do n times and returns the seconds of each time.
func each(n int, do func() error) ([]float64, error) {
	took := make([]float64, 0, n)
	for range n {
		begin := time.Now()
		if err := do(); err != nil {
			return took, err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	return took, nil
}

// command is how long a program of this machine takes, its output read through a pipe and thrown away.
func command(ctx context.Context, argv ...string) ([]float64, error) {
	return each(1, func() error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout = io.Discard
		return cmd.Run()
	})
}
