// Command bare is the limit of what a Go program can do here: the least code that does each job, with no
// policy, no guard and no contract. The benchmark measures the server beside it.
package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 0, "port to listen on")
	root := flag.String("root", "", "folder of the plain file server")
	flag.Parse()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", hello)
	mux.HandleFunc("GET /spawn", spawn)
	mux.HandleFunc("GET /plain/{name}", plainGet(*root))
	mux.HandleFunc("PUT /plain/{name}", plainPut(*root))
	mux.HandleFunc("POST /files/upload-stream", swallow)
	mux.HandleFunc("GET /files/download-stream", zeros)
	server := &http.Server{
		Addr:              net.JoinHostPort(*host, strconv.Itoa(*port)),
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

func hello(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]string{"status": "ok"})
}

// spawn answers the nanoseconds that each of n times fork, exec and wait of `true` took, both outputs
// read through pipes to their end, as any server has to.
func spawn(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || n < 1 || n > 1000 {
		http.Error(w, "n: 1 to 1000", http.StatusBadRequest)
		return
	}
	took := make([]int64, n)
	for i := range took {
		begin := time.Now()
		cmd := exec.CommandContext(r.Context(), "true")
		var out, errs countWriter
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		took[i] = time.Since(begin).Nanoseconds()
	}
	answer(w, took)
}

// countWriter is no *os.File, so that exec makes a pipe and reads it.
type countWriter int

func (c *countWriter) Write(p []byte) (int, error) {
	*c += countWriter(len(p))
	return len(p), nil
}

func plainGet(root string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(root, r.PathValue("name")))
	}
}

// plainPut promises what an atomic upload promises: a new file, synced, then renamed.
func plainPut(root string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := replace(root, r.PathValue("name"), r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
}

func replace(root, name string, src io.Reader) (err error) {
	f, err := os.CreateTemp(root, ".tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = io.Copy(f, src); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(root, name))
}

// swallow answers the published client's upload without keeping a byte: what is left is the client.
func swallow(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	answer(w, map[string]any{"path": "/dev/null", "bytes": n / 4 * 3})
}

// zeros answers the published client's download of a file whose name is its size, without a file.
func zeros(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(filepath.Base(r.FormValue("path")))
	if err != nil || n < 0 || n > 64<<20 {
		http.Error(w, "the last part of path is the size", http.StatusBadRequest)
		return
	}
	answer(w, map[string]any{
		"path": r.FormValue("path"), "bytes": n,
		"content_base64": base64.StdEncoding.EncodeToString(make([]byte, n)),
	})
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
