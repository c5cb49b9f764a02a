// Command driver measures the server beside the published one and beside the bare program, in one run:
// every round takes each of them in turn, so that what disturbs the machine disturbs all. It asserts no
// time. A new figure is one more row in rows.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// wholeRun bounds the run; rows that no longer fit are reported as such.
const wholeRun = 6 * time.Minute

type options struct {
	ours, published, bare, python string
	dir, report                   string
	only                          *regexp.Regexp
	rounds                        int
	write                         bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var o options
	var only string
	flag.StringVar(&o.ours, "ours", "", "our server")
	flag.StringVar(&o.published, "published", "", "the published server")
	flag.StringVar(&o.bare, "bare", "", "the bare program")
	flag.StringVar(&o.python, "python", "", "a Python that has the published client")
	flag.StringVar(&o.dir, "dir", "", "folder for the files (default: a temporary one)")
	flag.StringVar(&o.report, "report", "docs/benchmarks.md", "document whose table is replaced")
	flag.StringVar(&only, "rows", "", "measure only rows whose name matches")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds per row, at most (slow rows take fewer)")
	flag.BoolVar(&o.write, "write", true, "replace the table in the document (never when -rows is given)")
	flag.Parse()
	o.only = regexp.MustCompile(only)
	o.write = o.write && only == ""

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()

	dir, err := os.MkdirTemp(o.dir, "agent-sandbox-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Rules judge resolved paths; the names in our requests should be the same text.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if _, err := smallTree.make(dir); err != nil {
		return err
	}

	b, err := open(ctx, o, dir)
	if err != nil {
		return err
	}
	defer b.close()

	var results []result
	for _, r := range rows() {
		if o.only.MatchString(r.name) {
			res := b.measure(ctx, r)
			fmt.Fprintln(os.Stderr, res.line())
			results = append(results, res)
		}
	}
	for _, res := range results {
		err = errors.Join(err, res.ours.failure(res.name))
	}
	table := markdown(results, b.machine())
	// A run that was broken off or went wrong must not replace one that did not.
	if err == nil && o.write {
		return replaceTable(o.report, table)
	}
	fmt.Print(table)
	return err
}
