package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"
)

const (
	floodBytes = 20_000_000
	keys       = 200
	viewers    = 20
	fill       = "x"

	// The marks are spelt otherwise in what is typed, because that is shown too.
	floodMark = "DONE2"
	catMark   = "READY2"
	typeFlood = `head -c 20000000 /dev/zero | tr '\0' 'x' | fold -w 99; echo DONE$((1+1))` + "\n"
	typeCat   = `echo READY$((1+1)); exec cat` + "\n"
)

// errTakesTurns says why there is no figure for many viewers of one terminal.
var errTakesTurns = errors.New("each piece of output goes to one of its viewers only")

// flood is the time from typing a command until its last output has come, for one viewer, which is shown all.
func flood(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	took, least, err := floodAll(ctx, s, 1, 0)
	return []float64{took}, errors.Join(err, whole(least))
}

// floodMany is the time until the slowest of many viewers, of which one never reads, has been shown the
// end. The fastest sets the pace: what floodMissed tells is part of the figure.
func floodMany(ctx context.Context, b *bench, s *server) ([]float64, error) {
	if s == b.published {
		return nil, errTakesTurns
	}
	took, _, err := floodAll(ctx, s, viewers-1, 1)
	return []float64{took}, err
}

// floodMissed is the part of the output that the worst off of the reading viewers was not shown.
func floodMissed(ctx context.Context, b *bench, s *server) ([]float64, error) {
	if s == b.published {
		return nil, errTakesTurns
	}
	_, least, err := floodAll(ctx, s, viewers-1, 1)
	return []float64{max(0, 1-float64(least)/floodBytes)}, err
}

// floodAll returns the seconds until the last reading viewer saw the end, and the least that one was shown.
func floodAll(ctx context.Context, s *server, reading, idle int) (took float64, least int, err error) {
	ctx, cancel := context.WithTimeout(ctx, terminalLimit)
	defer cancel()
	t, err := openTerminal(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, t.remove(ctx)) }()
	var all []*viewer
	for range idle + reading {
		v, err := t.attach(ctx)
		if err != nil {
			return 0, 0, err
		}
		defer v.hangUp() // all stay
		all = append(all, v)
	}
	first := all[idle]
	begin := time.Now()
	if err := first.typeIn(ctx, typeFlood); err != nil {
		return 0, 0, err
	}
	least, err = readFlood(ctx, all[idle:])
	took = time.Since(begin).Seconds()
	return took, least, errors.Join(err, first.typeIn(ctx, "exit\n"))
}

// readFlood returns when each viewer has been shown the end, with the least fill that one was shown.
func readFlood(ctx context.Context, all []*viewer) (int, error) {
	shown, failed := make([]int, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { shown[i], failed[i] = v.until(ctx, floodMark) })
	}
	wg.Wait()
	return slices.Min(shown), errors.Join(failed...)
}

// whole fails when less than all of the fill was shown.
func whole(shown int) error {
	if shown < floodBytes {
		return fmt.Errorf("%d × %s shown, want %d", shown, fill, floodBytes)
	}
	return nil
}

func bareFlood(ctx context.Context, _ *bench) (took []float64, err error) {
	err = onBareTerminal(ctx, func(f *os.File) error {
		took, err = each(1, func() error {
			n, err := typeUntil(f, typeFlood, floodMark)
			return errors.Join(err, whole(n))
		})
		return err
	})
	return took, err
}

// echo is the time from a key until the terminal shows it.
func echo(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, terminalLimit)
	defer cancel()
	t, err := openTerminal(ctx, s)
	if err != nil {
		return nil, err
	}
	v, err := t.attach(ctx)
	if err != nil {
		return nil, errors.Join(err, t.remove(ctx))
	}
	defer v.hangUp()
	press := func(keys, mark string) error {
		if err := v.typeIn(ctx, keys); err != nil {
			return err
		}
		_, err := v.until(ctx, mark)
		return err
	}
	var took []float64
	if err = press(typeCat, catMark); err == nil {
		took, err = each(keys, func() error { return press("k", "k") })
	}
	return took, errors.Join(err, t.remove(ctx))
}

func bareEcho(ctx context.Context, _ *bench) (took []float64, err error) {
	err = onBareTerminal(ctx, func(f *os.File) error {
		if _, err := typeUntil(f, typeCat, catMark); err != nil {
			return err
		}
		took, err = each(keys, func() error {
			_, err := typeUntil(f, "k", "k")
			return err
		})
		return err
	})
	return took, err
}

// onBareTerminal runs a shell on a terminal of our own while do uses its other end.
func onBareTerminal(ctx context.Context, do func(*os.File) error) error {
	ctx, cancel := context.WithTimeout(ctx, terminalLimit)
	defer cancel() // the kernel hangs up on what the killed shell has started, which ends a read too
	cmd := exec.CommandContext(ctx, "/bin/sh")
	f, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	err = do(f)
	cancel()
	_ = f.Close()
	_ = cmd.Wait() // killed
	return err
}

// typeUntil writes to a terminal, reads up to and with mark, and returns how often fill was read.
func typeUntil(f *os.File, keys, mark string) (int, error) {
	if _, err := f.WriteString(keys); err != nil {
		return 0, err
	}
	filled := 0
	shown := finder{mark: []byte(mark)}
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return filled, fmt.Errorf("waiting for %q after %d × %s: %w", mark, filled, fill, err)
		}
		filled += bytes.Count(buf[:n], []byte(fill))
		if shown.find(buf[:n]) {
			return filled, nil
		}
	}
}

// terminalMemory is how far the resident size of the server alone, without the shells, rises for each
// terminal that has a viewer and nothing to do.
func terminalMemory(ctx context.Context, _ *bench, p program) ([]float64, error) {
	count := 50
	if p.name == "published" {
		count = 10 // it takes no more
	}
	ctx, cancel := context.WithTimeout(ctx, terminalLimit)
	defer cancel()
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var before float64
	for i := range count {
		t, err := openTerminal(ctx, s)
		if err != nil {
			return nil, err
		}
		v, err := t.attach(ctx)
		if err != nil {
			return nil, err
		}
		defer v.hangUp() // all stay
		// A stopping server may wait for shells, so none is left to wait for.
		defer func() { _ = v.typeIn(ctx, "exit\n") }()
		if _, err := v.until(ctx, "$ "); err != nil {
			return nil, err
		}
		if i > 0 {
			continue
		}
		// The first one also brings the code that all of them use.
		if err := pause(ctx); err != nil {
			return nil, err
		}
		if before, err = statusField(s.pid, "VmRSS"); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx); err != nil {
		return nil, err
	}
	after, err := statusField(s.pid, "VmRSS")
	return []float64{(after - before) / float64(count-1)}, err
}
