package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	calls        = 200       // small requests in one sample
	spawns       = 40        // commands in one sample
	streamLines  = 2_500_000 // seq 1 2500000 writes 18.9 MB
	clientBytes  = 7_000_000 // the published server's default body limit allows no more as base64
	largestBytes = 100 << 20 // the default upload limit
	rawBytes     = 1 << 30
)

// rows is the table, in the order of the document.
func rows() []row {
	return []row{
		{name: "start until healthy", unit: seconds, goal: goal{times: 20}, fresh: startTime},
		{name: "memory when idle", unit: size, goal: goal{share: 0.4}, rounds: 3, fresh: idleMemory},
		{name: "`GET /health`", unit: seconds, goal: goal{times: 4}, sample: gets("/health"), limit: bareHello},
		{name: "`GET /files/stat`", unit: seconds, goal: goal{times: 4}, sample: stat},
		{name: "`GET /capabilities`", unit: seconds, sample: gets("/capabilities")},
		{name: "`GET /system/info`", unit: seconds, sample: gets("/system/info")},
		{name: "`GET /packages`", unit: seconds, sample: packages},
		{name: "`POST /shell` of `true`", unit: seconds, goal: goal{times: 1.5, limit: 1.5}, sample: shellTrue, limit: bareSpawn},
		{name: "`POST /code/run` of `true` in bash", unit: seconds, sample: codeTrue},
		{name: "`POST /shell/stream`, 2.5 million lines (19 MB)", unit: seconds, goal: goal{times: 20}, rounds: 2, sample: streamShortLines, limit: bareSeq},
		{name: "`GET /files/list`, 20,000 files, recursive", unit: seconds, goal: goal{times: 5}, sample: list(smallTree), limit: findAll(smallTree)},
		{name: "`POST /files/search` by name, 20,000 files", unit: seconds, goal: goal{times: 5}, sample: searchNames(smallTree), limit: findNamed(smallTree)},
		{name: "`GET /files/list`, 50,000 files, recursive", unit: seconds, goal: goal{times: 10}, rounds: 2, sample: list(largeTree), limit: findAll(largeTree)},
		{name: "`POST /files/search` by name, 50,000 files", unit: seconds, goal: goal{times: 5, limit: 3}, rounds: 2, sample: searchNames(largeTree), limit: findNamed(largeTree)},
		{name: "`POST /files/search` in 50,000 files, 48 MB", unit: seconds, goal: goal{limit: 3}, rounds: 2, sample: searchContent(largeTree), limit: grep(largeTree)},
		{name: "`POST /files/archive` of 20,000 files, tar.gz", unit: seconds, rounds: 2, sample: pack(smallTree), limit: tarAll(smallTree)},
		{name: "upload by the published client, 7 MB", unit: seconds, goal: goal{client: true}, sample: clientUpload, limit: clientUploadAlone},
		{name: "download by the published client, 7 MB", unit: seconds, goal: goal{client: true}, sample: clientDownload, limit: clientDownloadAlone},
		{name: "`PUT /files/content`, 1 GiB", unit: seconds, goal: goal{limit: 2}, rounds: 2, sample: rawPut, limit: barePut},
		{name: "`GET /files/content`, 1 GiB", unit: seconds, goal: goal{limit: 2}, rounds: 2, sample: rawGet, limit: bareGet},
		{name: "memory grown by `PUT /files/content` of 1 GiB", unit: size, goal: goal{most: 64 << 20}, rounds: 2, fresh: rawPutMemory, limit: barePutMemory},
		{name: "memory grown by its `GET`", unit: size, goal: goal{most: 64 << 20}, rounds: 2, fresh: rawGetMemory, limit: bareGetMemory},
		{name: "memory grown by the largest upload (100 MiB, base64)", unit: size, goal: goal{most: 64 << 20}, rounds: 2, fresh: uploadMemory},
		{name: "memory grown by its download", unit: size, goal: goal{most: 64 << 20}, rounds: 2, fresh: downloadMemory},
		{name: "20 MB through a terminal", unit: seconds, rounds: 3, sample: flood, limit: bareFlood},
		{name: "its end shown to the slowest of 20 viewers, one of which never reads", unit: seconds, rounds: 2, sample: floodMany},
		{name: "part of the 20 MB that the worst off of those 19 misses", unit: percent, rounds: 2, sample: floodMissed},
		{name: "echo of a key in a terminal", unit: seconds, rounds: 3, sample: echo, limit: bareEcho},
		{name: "memory grown by each idle terminal, shells left out", unit: smallSize, rounds: 2, fresh: terminalMemory},
		{name: "`GET /files/watch`, from a new file to its event", unit: seconds, rounds: 1, sample: watched},
		{name: "first `POST /browser/navigate`, which starts the browser", unit: seconds, rounds: 3, fresh: firstView, limit: bareView},
		{name: "later `POST /browser/navigate` and `screenshot`", unit: seconds, rounds: 1, fresh: laterViews},
		{name: "`GET /browser/snapshot` of 5,000 nodes", unit: seconds, rounds: 1, fresh: snapshots},
		{name: "memory of the server alone, no browser started", unit: size, rounds: 2, fresh: ownMemory(false)},
		{name: "memory of the server alone beside a browser", unit: size, rounds: 2, fresh: ownMemory(true)},
		{name: "`POST /commands/greet`, a Python function", unit: seconds, rounds: 2, fresh: greet},
		{name: "100 calls at once of a Python function that sleeps 200 ms", unit: seconds, rounds: 2, fresh: naps},
	}
}

// ---- start and memory

func startTime(ctx context.Context, _ *bench, p program) ([]float64, error) {
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	return []float64{s.started.Seconds()}, nil
}

// idleMemory is the resident size one second after the first healthy answer.
func idleMemory(ctx context.Context, _ *bench, p program) ([]float64, error) {
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := pause(ctx); err != nil {
		return nil, err
	}
	bytes, err := s.memory("VmRSS")
	return []float64{bytes}, err
}

// pause lets a second pass, after which a server is as idle as it gets.
func pause(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// grown is how far the peak resident size of a fresh server rises above its idle size while do runs.
func grown(ctx context.Context, p program, do func(*server) error) ([]float64, error) {
	p.env = append(p.env, "ABX_SERVER_POLICY="+policyText)
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := pause(ctx); err != nil {
		return nil, err
	}
	s.forgetPeak()
	before, err := s.memory("VmRSS")
	if err != nil {
		return nil, err
	}
	if err := do(s); err != nil {
		return nil, err
	}
	peak, err := s.memory("VmHWM")
	return []float64{peak - before}, err
}

func uploadMemory(ctx context.Context, b *bench, p program) ([]float64, error) {
	return grown(ctx, p, func(s *server) error {
		head := fmt.Sprintf(`{"path": %q, "content_base64": "`, b.path("largest-"+p.name))
		const whole = largestBytes / 3 * 3 // base64 without padding
		body := io.MultiReader(strings.NewReader(head), io.LimitReader(repeated('A'), whole/3*4), strings.NewReader(`"}`))
		length := int64(len(head) + whole/3*4 + len(`"}`))
		return s.stream(ctx, "POST", "/files/upload-stream", body, length, discard)
	})
}

// downloadMemory fetches what uploadMemory left.
func downloadMemory(ctx context.Context, b *bench, p program) ([]float64, error) {
	return grown(ctx, p, func(s *server) error {
		return s.stream(ctx, "GET", "/files/download-stream?path="+b.path("largest-"+p.name), nil, 0, discard)
	})
}

// ---- small requests

func gets(target string) func(context.Context, *bench, *server) ([]float64, error) {
	return func(ctx context.Context, _ *bench, s *server) ([]float64, error) {
		return each(calls, func() error {
			_, err := s.get(ctx, target)
			return err
		})
	}
}

// packages asks for one list fewer times: the published server starts pip for it.
func packages(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	return each(5, func() error {
		_, err := s.get(ctx, "/packages")
		return err
	})
}

func bareHello(ctx context.Context, b *bench) ([]float64, error) {
	return gets("/health")(ctx, b, b.bare)
}

func stat(ctx context.Context, b *bench, s *server) ([]float64, error) {
	return gets("/files/stat?path="+b.path("tree/part00/section00/file00000.txt"))(ctx, b, s)
}

// ---- commands

func shellTrue(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	return succeeds(ctx, s, "/shell", `{"command": "true"}`)
}

func codeTrue(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	return succeeds(ctx, s, "/code/run", `{"language": "bash", "code": "true"}`)
}

// succeeds measures requests that run a program which exits with 0.
func succeeds(ctx context.Context, s *server, path, request string) ([]float64, error) {
	return each(spawns, func() error {
		body, err := s.post(ctx, path, request)
		if err != nil {
			return err
		}
		var ended struct {
			ExitCode *int `json:"exit_code"`
		}
		if err := json.Unmarshal(body, &ended); err != nil || ended.ExitCode == nil || *ended.ExitCode != 0 {
			return fmt.Errorf("%s answered %.200s", path, body)
		}
		return nil
	})
}

func bareSpawn(ctx context.Context, b *bench) ([]float64, error) {
	body, err := b.bare.get(ctx, fmt.Sprintf("/spawn?n=%d", spawns))
	if err != nil {
		return nil, err
	}
	var nanoseconds []float64
	if err := json.Unmarshal(body, &nanoseconds); err != nil {
		return nil, err
	}
	for i := range nanoseconds {
		nanoseconds[i] /= 1e9
	}
	return nanoseconds, nil
}

func streamShortLines(ctx context.Context, _ *bench, s *server) ([]float64, error) {
	return each(1, func() error {
		body := fmt.Sprintf(`{"command": "seq 1 %d", "timeout": 80}`, streamLines)
		var seen tail
		err := s.stream(ctx, "POST", "/shell/stream", strings.NewReader(body), int64(len(body)), func(r io.Reader) error {
			_, err := drain(&seen, r)
			return err
		})
		if err != nil {
			return err
		}
		// An event is three line ends; comments may add some.
		if seen.lines < 3*(streamLines+1) || !bytes.Contains(seen.last, []byte("event: exit")) {
			return fmt.Errorf("the stream ended early, after %d line ends, with %q", seen.lines, seen.last)
		}
		return nil
	})
}

// tail counts the line ends of a stream and keeps its last bytes.
type tail struct {
	lines int
	last  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.lines += bytes.Count(p, []byte("\n"))
	t.last = append(t.last, p[max(0, len(p)-100):]...)
	t.last = t.last[max(0, len(t.last)-100):]
	return len(p), nil
}

// bareSeq is the program alone, read through a pipe.
func bareSeq(ctx context.Context, _ *bench) ([]float64, error) {
	return command(ctx, "seq", "1", fmt.Sprint(streamLines))
}

// ---- trees

type (
	sampler func(context.Context, *bench, *server) ([]float64, error)
	limiter func(context.Context, *bench) ([]float64, error)
)

func list(t tree) sampler {
	return func(ctx context.Context, b *bench, s *server) ([]float64, error) {
		top, err := t.make(b.dir)
		if err != nil {
			return nil, err
		}
		return each(1, func() error {
			body, err := s.get(ctx, "/files/list?recursive=true&max_entries=100000&path="+top)
			return counted(body, err, t.entries())
		})
	}
}

// on runs a program of this machine on a tree.
func on(t tree, argv func(top string) []string) limiter {
	return func(ctx context.Context, b *bench) ([]float64, error) {
		top, err := t.make(b.dir)
		if err != nil {
			return nil, err
		}
		return command(ctx, argv(top)...)
	}
}

func findAll(t tree) limiter {
	return on(t, func(top string) []string { return []string{"find", top, "-printf", `%f %y %s %T@\n`} })
}

func searchNames(t tree) sampler { return search(t, "", t.hits()) }

func search(t tree, more string, hits int) sampler {
	return func(ctx context.Context, b *bench, s *server) ([]float64, error) {
		top, err := t.make(b.dir)
		if err != nil {
			return nil, err
		}
		pattern := "*7.txt"
		if more != "" {
			pattern = "*"
		}
		return each(1, func() error {
			body, err := s.post(ctx, "/files/search",
				fmt.Sprintf(`{"path": %q, "pattern": %q, "max_depth": 10, "max_results": 100000%s}`, top, pattern, more))
			return counted(body, err, hits)
		})
	}
}

func findNamed(t tree) limiter {
	return on(t, func(top string) []string { return []string{"find", top, "-type", "f", "-name", "*7.txt"} })
}

// searchContent is what the published server does not have.
func searchContent(t tree) sampler {
	ours := search(t, `, "content": "needle in"`, t.total()/oneIn)
	return func(ctx context.Context, b *bench, s *server) ([]float64, error) {
		if s == b.published {
			return nil, errNotServed
		}
		return ours(ctx, b, s)
	}
}

func grep(t tree) limiter {
	return on(t, func(top string) []string { return []string{"grep", "-rn", "needle in", top} })
}

func pack(t tree) sampler {
	return func(ctx context.Context, b *bench, s *server) ([]float64, error) {
		top, err := t.make(b.dir)
		if err != nil {
			return nil, err
		}
		return each(1, func() error {
			_, err := s.post(ctx, "/files/archive", fmt.Sprintf(`{"paths": [%q]}`, top))
			return err
		})
	}
}

func tarAll(t tree) limiter {
	return on(t, func(top string) []string { return []string{"tar", "czf", "-", "-C", top, "."} })
}

// counted fails unless an answer has as many named items as there are.
func counted(body []byte, err error, want int) error {
	if got := bytes.Count(body, []byte(`"name":`)); err == nil && got != want {
		return fmt.Errorf("%d names in the answer, want %d", got, want)
	}
	return err
}

// ---- transfers

func clientUpload(_ context.Context, b *bench, s *server) ([]float64, error) {
	return one(b.transferer.seconds("upload", s.url(), b.path("client-"+s.name), clientBytes))
}

// clientDownload fetches what clientUpload left.
func clientDownload(_ context.Context, b *bench, s *server) ([]float64, error) {
	return one(b.transferer.seconds("download", s.url(), b.path("client-"+s.name), clientBytes))
}

// clientUploadAlone is the client against a server that throws the bytes away.
func clientUploadAlone(_ context.Context, b *bench) ([]float64, error) {
	return one(b.transferer.seconds("upload", b.bare.url(), b.path("nothing"), clientBytes))
}

func clientDownloadAlone(_ context.Context, b *bench) ([]float64, error) {
	return one(b.transferer.seconds("download", b.bare.url(), b.path(fmt.Sprint(clientBytes)), clientBytes))
}

func one(v float64, err error) ([]float64, error) { return []float64{v}, err }

func rawPut(ctx context.Context, b *bench, s *server) ([]float64, error) {
	return put(ctx, s, "/files/content?path="+b.path("raw-"+s.name))
}

func barePut(ctx context.Context, b *bench) ([]float64, error) {
	return put(ctx, b.bare, "/plain/raw-bare")
}

func put(ctx context.Context, s *server, target string) ([]float64, error) {
	// An empty one first: a server without the route would hang up in the middle of a large one.
	if _, err := s.call(ctx, "PUT", target, nil); err != nil {
		return nil, err
	}
	return each(1, func() error {
		return s.stream(ctx, "PUT", target, repeated('x'), rawBytes, discard)
	})
}

// rawGet fetches what rawPut left.
func rawGet(ctx context.Context, b *bench, s *server) ([]float64, error) {
	return fetch(ctx, s, "/files/content?path="+b.path("raw-"+s.name))
}

func bareGet(ctx context.Context, b *bench) ([]float64, error) {
	return fetch(ctx, b.bare, "/plain/raw-bare")
}

func fetch(ctx context.Context, s *server, target string) ([]float64, error) {
	return each(1, func() error {
		return s.stream(ctx, "GET", target, nil, 0, func(r io.Reader) error {
			n, err := drain(io.Discard, r)
			if err == nil && n != rawBytes {
				err = fmt.Errorf("%d bytes, want %d", n, rawBytes)
			}
			return err
		})
	})
}

func rawPutMemory(ctx context.Context, b *bench, p program) ([]float64, error) {
	return grown(ctx, p, func(s *server) error {
		_, err := rawPut(ctx, b, s)
		return err
	})
}

// rawGetMemory fetches what rawPutMemory left.
func rawGetMemory(ctx context.Context, b *bench, p program) ([]float64, error) {
	return grown(ctx, p, func(s *server) error {
		_, err := rawGet(ctx, b, s)
		return err
	})
}

func barePutMemory(ctx context.Context, b *bench) ([]float64, error) {
	return grown(ctx, b.bareProg, func(s *server) error {
		_, err := put(ctx, s, "/plain/raw-bare")
		return err
	})
}

func bareGetMemory(ctx context.Context, b *bench) ([]float64, error) {
	return grown(ctx, b.bareProg, func(s *server) error {
		_, err := fetch(ctx, s, "/plain/raw-bare")
		return err
	})
}

// block is read again and again without end.
type block []byte

func repeated(c byte) block { return bytes.Repeat([]byte{c}, 64<<10) }

func (b block) Read(p []byte) (int, error) { return copy(p, b), nil }

func discard(r io.Reader) error {
	_, err := drain(io.Discard, r)
	return err
}

// drain copies in pieces large enough that the connection's own buffer is left out.
func drain(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
}
