package envd

import (
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// arriveAtFiles begins a call of /files. The call must be left whether or not
// there is an error, unless it is nil.
func (s *Server) arriveAtFiles(r *http.Request, id, operation string) (*call, url.Values, error) {
	q, err := fileQuery(r)
	arrived, arriveErr := s.Gate.Arrive(r, door, id, s.identifyFiles(r, q, operation))
	c := &call{Call: arrived, s: s, user: s.self}
	if err == nil {
		err = arriveErr
	}
	if err == nil {
		err = c.Enter(id)
	}
	if err == nil {
		err = c.become(q.Get("username"))
	}
	return c, q, err
}

// fileQuery reads the query of /files, in which nothing may be said twice.
func fileQuery(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return url.Values{}, connect.Errorf(connect.InvalidArgument, "the query cannot be read")
	}
	for _, name := range []string{"path", "username", "signature", "signature_expiration"} {
		if len(q[name]) > 1 {
			return url.Values{}, connect.Errorf(connect.InvalidArgument, "'%s' is given twice", name)
		}
	}
	if text := q.Get("signature_expiration"); text != "" {
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return url.Values{}, connect.Errorf(connect.InvalidArgument, "invalid 'signature_expiration'")
		}
	}
	return q, nil
}

// download serves GET and HEAD /files.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	c, q, err := s.arriveAtFiles(r, "files_download_stream", "read")
	status := http.StatusOK
	defer func() { c.Leave(status, codeOf(err)) }()
	var f *os.File
	var info guardfs.Info
	if err == nil {
		f, info, err = c.open(q.Get("path"))
	}
	if err != nil {
		status = s.fail(w, err)
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Disposition", disposition(path.Base(info.Path)))
	plain, packed := codings(r.Header.Get("Accept-Encoding"))
	if packed && !conditional(r.Header) {
		sendPacked(w, r, f, info)
		return
	}
	if !plain {
		status = http.StatusNotAcceptable
		writeFailure(w, status, "no acceptable encoding")
		return
	}
	h.Set("ETag", info.ETag())
	http.ServeContent(w, r, path.Base(info.Path), info.Modified(), f)
}

// open opens a file to be sent, as the call's user.
func (c *call) open(name string) (f *os.File, info guardfs.Info, err error) {
	full, err := c.expand(name)
	if err != nil {
		return nil, info, err
	}
	g := c.guard(c.Rule)
	if err := c.files(func() (err error) { f, info, err = g.Open(full); return err }); err != nil {
		return nil, info, err
	}
	if most, ok := c.Rule.Int("max_bytes"); ok && info.Size > most {
		_ = f.Close()
		return nil, info, api.TooLarge(most, "payload_too_large: the file has %d bytes, the limit is %d", info.Size, most)
	}
	return f, info, nil
}

func disposition(name string) string {
	if text := mime.FormatMediaType("inline", map[string]string{"filename": shownPath(name)}); text != "" {
		return text
	}
	return "inline"
}

// conditional tells whether a request asks for a part or depends on what it
// has.
func conditional(h http.Header) bool {
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// codings tells whether a peer takes plain content, and gzip.
func codings(header string) (plain, packed bool) {
	plain = true
	all := true
	for item := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.ToLower(item), ";")
		refused := refuses(params)
		switch strings.TrimSpace(name) {
		case "gzip":
			packed = !refused
		case "identity":
			plain, all = !refused, false
		case "*":
			if all {
				plain = !refused
			}
		}
	}
	return plain, packed
}

// refuses tells whether the weight of a coding is zero.
func refuses(params string) bool {
	_, q, ok := strings.Cut(params, "q=")
	weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
	return ok && err == nil && weight == 0
}

func sendPacked(w http.ResponseWriter, r *http.Request, f *os.File, info guardfs.Info) {
	h := w.Header()
	var head [512]byte
	n, _ := io.ReadFull(f, head[:])
	kind := mime.TypeByExtension(path.Ext(info.Path))
	if kind == "" {
		kind = http.DetectContentType(head[:n])
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Encoding", "gzip")
	h.Set("Last-Modified", info.Modified().Format(http.TimeFormat))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a level there is
	_, err := z.Write(head[:n])
	if err == nil {
		_, err = io.Copy(z, f)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
}
