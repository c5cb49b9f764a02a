package browser

import (
	"encoding/json"
	"strings"
	"sync"
)

const (
	maxEntries = 1000
	maxText    = 8 << 10 // bytes of one entry
)

// Entry is a line of the console.
type Entry struct {
	Type      string  `json:"type" doc:"log, debug, info, warning, error, pageerror and others."`
	Text      string  `json:"text"`
	Timestamp float64 `json:"timestamp" doc:"Unix seconds."`
	Tab       string  `json:"tab"`
}

// console keeps the newest entries of all pages.
type console struct {
	mu      sync.Mutex
	list    []Entry
	dropped int64
}

func (c *console) add(e Entry) {
	if len(e.Text) > maxText {
		e.Text = strings.ToValidUTF8(e.Text[:maxText], "") + "…"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxEntries {
		c.list = c.list[1:]
		c.dropped++
	}
	c.list = append(c.list, e)
}

// read empties the console, of one tab or of all.
func (c *console) read(tab string) ([]Entry, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, rest := []Entry{}, []Entry(nil)
	for _, e := range c.list {
		if tab == "" || e.Tab == tab {
			out = append(out, e)
		} else {
			rest = append(rest, e)
		}
	}
	dropped := c.dropped
	c.list, c.dropped = rest, 0
	return out, dropped
}

// take reads an event into an entry.
func (c *console) take(tab string, m *message) {
	var p struct {
		Type      string         `json:"type"`
		Args      []remoteObject `json:"args"`
		Timestamp float64        `json:"timestamp"`
		Exception struct {
			Text      string        `json:"text"`
			Exception *remoteObject `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level     string  `json:"level"`
			Text      string  `json:"text"`
			Timestamp float64 `json:"timestamp"`
		} `json:"entry"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	e := Entry{Type: p.Type, Timestamp: p.Timestamp / 1000, Tab: tab}
	switch m.Method {
	case "Runtime.consoleAPICalled":
		words := make([]string, len(p.Args))
		for i := range p.Args {
			words[i] = p.Args[i].String()
		}
		e.Text = strings.Join(words, " ")
	case "Runtime.exceptionThrown":
		e.Type, e.Text = "pageerror", p.Exception.Text
		if x := p.Exception.Exception; x != nil {
			e.Text = x.message()
		}
	default:
		e.Type, e.Text, e.Timestamp = p.Entry.Level, p.Entry.Text, p.Entry.Timestamp/1000
		if e.Type == "verbose" {
			e.Type = "debug"
		}
	}
	c.add(e)
}

// remoteObject is a value of the page as Chrome describes it.
type remoteObject struct {
	ID             string          `json:"objectId"`
	Type           string          `json:"type"`
	Subtype        string          `json:"subtype"`
	Class          string          `json:"className"`
	Value          json.RawMessage `json:"value"`
	Unserializable string          `json:"unserializableValue"`
	Description    string          `json:"description"`
	Preview        *struct {
		Overflow   bool `json:"overflow"`
		Properties []struct {
			Name    string `json:"name"`
			Type    string `json:"type"`
			Subtype string `json:"subtype"`
			Value   string `json:"value"`
		} `json:"properties"`
	} `json:"preview"`
}

// String shows a value as consoles do.
func (o *remoteObject) String() string {
	switch {
	case o.Type == "undefined":
		return "undefined"
	case o.Unserializable != "":
		return o.Unserializable
	case len(o.Value) > 0:
		var s string
		if json.Unmarshal(o.Value, &s) == nil && o.Type == "string" {
			return s
		}
		return string(o.Value)
	case o.Preview == nil || o.Subtype != "array" && o.Description != "Object":
		return o.Description
	}
	var parts []string
	for _, p := range o.Preview.Properties {
		v := p.Value
		if v == "" && p.Type != "string" {
			v = p.Type
		}
		if o.Subtype != "array" {
			v = p.Name + ": " + v
		}
		parts = append(parts, v)
	}
	if o.Preview.Overflow {
		parts = append(parts, "…")
	}
	if o.Subtype == "array" {
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// message is what a thrown value says, without its stack.
func (o *remoteObject) message() string {
	if o.Subtype != "error" {
		return o.String()
	}
	text, _, _ := strings.Cut(o.Description, "\n    at ")
	return text
}
