package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// contractVersion is the only discovery format the published client reads.
const contractVersion = 2

// Discovery answers GET /capabilities. The document of one identity is built
// once for each policy. It is safe for concurrent use.
type Discovery struct {
	Version  string
	Features []string // names of what the server has beyond the published contract
	// Listeners are those that speak other dialects. They are set before the
	// first request.
	Listeners map[string]Listener

	mu   sync.Mutex
	of   *policy.Policy
	docs map[string]*document
}

// maxDocuments bounds the cache; identities come from the policy, so it is
// reached only by a policy with very many tokens.
const maxDocuments = 256

type entry struct {
	Method    string   `json:"method"`
	Path      string   `json:"path"`
	Group     string   `json:"group"`
	Summary   string   `json:"summary"`
	Streaming bool     `json:"streaming"`
	Enabled   bool     `json:"enabled"`
	Allowed   bool     `json:"allowed"`
	Reason    *string  `json:"reason"`
	Rule      *string  `json:"rule"`
	Scopes    []string `json:"scopes"`

	// Only when allowed.
	Limits map[string]any `json:"limits,omitzero"`
	Params map[string]any `json:"params,omitzero"`
	Paths  map[string]any `json:"paths,omitzero"`
}

type capabilities struct {
	APIVersion    int                          `json:"api_version"`
	ServerVersion string                       `json:"server_version"`
	Groups        map[string]bool              `json:"groups"`
	GroupSummary  map[string]policy.GroupCount `json:"group_summary"`
	Identity      identityEntry                `json:"identity"`
	Policy        policyEntry                  `json:"policy"`
	Endpoints     map[string]entry             `json:"endpoints"`
	Warnings      []string                     `json:"warnings"`
	Features      []string                     `json:"features"`
	Listeners     map[string]Listener          `json:"listeners,omitempty"`
}

type identityEntry struct {
	ID     string   `json:"id"`
	Scopes []string `json:"scopes"`
}

// Listener is where another dialect is spoken, and in which version.
type Listener struct {
	Port    int    `json:"port"`
	Version string `json:"version"`
}

type policyEntry struct {
	Preset     string `json:"preset"`
	Revision   string `json:"revision"`
	Configured bool   `json:"configured"`
}

// Answer is the document for the caller, or the entry of one endpoint.
func (d *Discovery) Answer(c *Call, only string) (Body, error) {
	doc, err := d.document(c.Policy, c.Identity)
	if err != nil {
		return nil, err
	}
	if only == "" {
		return doc.answer(c.R), nil
	}
	rule := c.Policy.Rule(only)
	if rule == nil {
		return nil, Errorf(http.StatusNotFound, "ValueError", "unknown_endpoint", "Unknown endpoint '%s'", only)
	}
	text, err := encode(map[string]any{only: entryOf(c.Policy, c.Identity, rule)})
	if err != nil {
		return nil, err
	}
	return &document{text: text}, nil
}

func (d *Discovery) document(p *policy.Policy, who policy.Identity) (*document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != p || len(d.docs) >= maxDocuments {
		d.of, d.docs = p, map[string]*document{}
	}
	if doc := d.docs[who.ID]; doc != nil {
		return doc, nil
	}
	text, err := encode(d.describe(p, who))
	if err != nil {
		return nil, err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(text)
	_ = z.Close()
	doc := &document{text: text, zipped: zipped.Bytes(), etag: strconv.Quote(p.Revision() + "-" + url.QueryEscape(who.ID))}
	d.docs[who.ID] = doc
	return doc, nil
}

func (d *Discovery) describe(p *policy.Policy, who policy.Identity) capabilities {
	out := capabilities{
		APIVersion:    contractVersion,
		ServerVersion: d.Version,
		Groups:        map[string]bool{},
		GroupSummary:  p.GroupSummary(),
		Identity:      identityEntry{who.ID, append([]string{}, who.Scopes...)},
		Policy:        policyEntry{p.Preset(), p.Revision(), p.Configured()},
		Endpoints:     map[string]entry{},
		Warnings:      []string{},
		Features:      append([]string{}, d.Features...),
		Listeners:     d.Listeners,
	}
	for group, n := range out.GroupSummary {
		out.Groups[group] = n.Enabled > 0
	}
	for _, rule := range p.Rules() {
		out.Endpoints[rule.Row.Name] = entryOf(p, who, rule)
	}
	if p.HasTokens() && slices.Contains(who.Scopes, "*") {
		out.Warnings = append(out.Warnings, "This identity holds every scope (*)")
	}
	return out
}

func entryOf(p *policy.Policy, who policy.Identity, rule *policy.Rule) entry {
	row := rule.Row
	e := entry{
		Method: row.Method, Path: row.Path, Group: row.Group, Summary: row.Summary,
		Streaming: row.Streaming, Enabled: rule.Enabled, Scopes: append([]string{}, rule.Scopes...),
	}
	d := p.Decide(who, row.Name)
	if !d.OK() {
		reason := string(d.Code)
		e.Reason = &reason
		if d.Code == policy.EndpointDisabled {
			e.Rule = &d.Rule
		}
		return e
	}
	e.Allowed = true
	e.Limits, e.Params = rule.LimitsView(), rule.ParamsView()
	e.Paths = rule.PathsView()
	return e
}

// document is one encoded answer, plain and compressed.
type document struct {
	text, zipped []byte
	etag         string
}

// shown is a document as one request asked for it.
type shown struct {
	*document
	notModified bool
	gzip        bool
}

func (d *document) answer(r *http.Request) Body {
	out := &shown{document: d}
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == d.etag || tag == "*" {
			out.notModified = true
		}
	}
	for enc := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.ReplaceAll(enc, " ", ""), ";q=")
		if strings.EqualFold(name, "gzip") && q != "0" {
			out.gzip = true
		}
	}
	return out
}

// Status implements [Statuser].
func (s *shown) Status() int {
	if s.notModified {
		return http.StatusNotModified
	}
	return http.StatusOK
}

// Header implements [Body].
func (s *shown) Header(h http.Header) {
	s.document.Header(h)
	h.Set("ETag", s.etag)
	h.Set("Cache-Control", "no-cache")
	h.Add("Vary", "Accept-Encoding, Authorization, X-Access-Token")
	if s.notModified {
		h.Del("Content-Length")
		h.Del("Content-Type")
		return
	}
	if s.gzip {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(s.zipped)))
	}
}

// Send implements [Body].
func (s *shown) Send(_ context.Context, w io.Writer) error {
	text := s.text
	if s.gzip {
		text = s.zipped
	}
	_, err := w.Write(text)
	return err
}

// Header implements [Body].
func (d *document) Header(h http.Header) {
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(d.text)))
}

// Send implements [Body].
func (d *document) Send(_ context.Context, w io.Writer) error {
	_, err := w.Write(d.text)
	return err
}
