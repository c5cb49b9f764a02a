package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const (
	beginMark = "<!-- bench/run writes from here -->"
	endMark   = "<!-- to here -->"
)

// unit is how a figure is written.
type unit func(float64) string

func seconds(v float64) string {
	switch {
	case v < 1e-3:
		return fmt.Sprintf("%.0f µs", v*1e6)
	case v < 1:
		return fmt.Sprintf("%.3g ms", v*1e3)
	}
	return fmt.Sprintf("%.3g s", v)
}

func size(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }

func percent(v float64) string { return fmt.Sprintf("%.3g %%", v*100) }

func smallSize(v float64) string { return fmt.Sprintf("%.0f KiB", v/(1<<10)) }

// goal is what we aim at; fields that are zero ask for nothing.
type goal struct {
	times  float64 // so many times less than the published server needs
	share  float64 // at most this part of what the published server needs
	limit  float64 // at most so many times the limit
	most   float64 // at most this
	client bool    // the limit is the client: at most half above it
}

func (g goal) text(u unit) string {
	var all []string
	if g.times > 0 {
		all = append(all, fmt.Sprintf("≥ %g times faster", g.times))
	}
	if g.share > 0 {
		all = append(all, fmt.Sprintf("≤ %g %% of the published server", g.share*100))
	}
	if g.limit > 0 {
		all = append(all, fmt.Sprintf("≤ %g times the limit", g.limit))
	}
	if g.client {
		all = append(all, "bounded by the client")
	}
	if g.most > 0 {
		all = append(all, "≤ "+u(g.most))
	}
	return strings.Join(all, ", ")
}

// verdict says whether a result reaches the goal: "yes", "no", or "" when nothing can be said.
func (g goal) verdict(r result) string {
	allowed := g.limit
	if g.client {
		allowed = 1.5
	}
	var met []bool
	compare := func(wanted bool, other figure, ok func() bool) {
		if wanted && other.err == nil {
			met = append(met, ok())
		}
	}
	compare(g.times > 0, r.published, func() bool { return r.published.value >= g.times*r.ours.value })
	compare(g.share > 0, r.published, func() bool { return r.ours.value <= g.share*r.published.value })
	compare(allowed > 0, r.least, func() bool { return r.ours.value <= allowed*r.least.value })
	compare(g.most > 0, figure{}, func() bool { return r.ours.value <= g.most })
	if r.ours.err != nil || len(met) == 0 {
		return ""
	}
	for _, ok := range met {
		if !ok {
			return "no"
		}
	}
	return "yes"
}

// cell is a figure, or in a word why there is none.
func (r row) cell(f figure) string {
	switch {
	case f.err == nil:
		return r.unit(f.value)
	case errors.Is(f.err, errNoLimit), errors.Is(f.err, errTakesTurns):
		return "–"
	case errors.Is(f.err, errNotServed):
		return "not served"
	case errors.Is(f.err, context.DeadlineExceeded):
		return "out of time"
	}
	return "failed"
}

func ratio(over, under figure) string {
	if over.err != nil || under.err != nil || under.value <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g", over.value/under.value)
}

func (r result) cells() []string {
	goal := r.goal.text(r.unit)
	if goal == "" {
		goal = "–"
	}
	return []string{
		r.name, r.cell(r.published), r.cell(r.ours), r.cell(r.least),
		ratio(r.published, r.ours), ratio(r.ours, r.least), goal, r.goal.verdict(r),
	}
}

// line is a row for the person who waits, with what went wrong.
func (r result) line() string {
	lines := []string{strings.Join(r.cells(), " | ")}
	for _, f := range []figure{r.published, r.ours, r.least} {
		if f.err != nil && !errors.Is(f.err, errNoLimit) && !errors.Is(f.err, errNotServed) {
			lines = append(lines, "    "+f.err.Error())
		}
	}
	return strings.Join(lines, "\n")
}

func markdown(results []result, machine string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", machine)
	b.WriteString("| What | published | ours | limit | published ÷ ours | ours ÷ limit | goal | reached |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	return b.String()
}

// machine says in one line where and when the figures were taken.
func (b *bench) machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	version := "unknown"
	if out, err := exec.Command(b.oursProg.args(0, 0)[0], "version").Output(); err == nil {
		version = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Version %s, %s, %s/%s, %d × %s, %s.", version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model, time.Now().UTC().Format(time.DateOnly))
}

// replaceTable puts table between the marks of a document.
func replaceTable(document, table string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the marks %q and %q", document, beginMark, endMark)
	}
	return os.WriteFile(document, []byte(before+beginMark+"\n"+table+endMark+after), 0o644)
}
