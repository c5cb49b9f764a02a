package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
)

// decode reads the whole JSON body and fills in.
func (c *Call) decode(in any) error {
	if c.Endpoint.body == noBody {
		return c.fill(in, nil)
	}
	text, err := c.readAll()
	if err != nil {
		return err
	}
	fields, err := members(text, namesOf(in))
	if err != nil {
		return err
	}
	c.text = text
	return c.fill(in, fields)
}

func (c *Call) readAll() ([]byte, error) {
	if c.cached != nil || c.R.ContentLength == 0 {
		return c.cached, nil
	}
	return io.ReadAll(c.body)
}

// jsonError is the answer to malformed JSON, or the failure of the body.
func jsonError(err error) error {
	if s, ok := errors.AsType[*syntaxError](err); ok {
		return &Error{Status: http.StatusBadRequest, Type: "ValueError", Code: "invalid_json", Msg: "Invalid JSON: " + s.Error(), NoEndpoint: true}
	}
	return err
}

func notObject() error {
	return &Error{Status: http.StatusBadRequest, Type: "ValueError", Code: "body_not_object", Msg: "The request body must be a JSON object", NoEndpoint: true}
}

// maxValues bounds the values of a body that are held for a handler. Two bytes
// of text can make a hundred of memory: without it a few bodies of the largest
// size would take all there is.
const maxValues = 200_000

// members reads a body that must be an object and returns the values of the
// names wanted, or of all when wanted is nil. The rest is checked and forgotten:
// a caller cannot make us hold more than we asked for.
func members(text []byte, wanted map[string]bool) (map[string]any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	s := scanBytes(text)
	if wanted != nil {
		s.most = maxValues
	}
	fields := map[string]any{}
	object := false
	c, err := s.token()
	if err == nil {
		if object = c == '{'; !object {
			err = s.skip(0)
		} else {
			err = s.object(1, func(name string) (err error) {
				if wanted != nil && !wanted[name] {
					return s.skip(1)
				}
				fields[name], err = s.value(1)
				return err
			})
		}
	}
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, jsonError(err)
	}
	if !object {
		return nil, notObject()
	}
	return fields, nil
}

// plan is how the fields of an In type are filled.
type plan struct {
	index []int
	from  string // "query", "path" or "json"
	name  string
}

var plans sync.Map // reflect.Type → []plan

func planOf(t reflect.Type) []plan {
	if p, ok := plans.Load(t); ok {
		return p.([]plan)
	}
	var out []plan
	for _, f := range reflect.VisibleFields(t) {
		for _, from := range []string{"query", "path", "json"} {
			if name := f.Tag.Get(from); name != "" {
				out = append(out, plan{index: f.Index, from: from, name: name})
			}
		}
	}
	plans.Store(t, out)
	return out
}

func namesOf(in any) map[string]bool {
	names := map[string]bool{}
	for _, p := range planOf(reflect.TypeOf(in).Elem()) {
		if p.from == "json" {
			names[p.name] = true
		}
	}
	return names
}

// fill sets the tagged fields of *in.
func (c *Call) fill(in any, fields map[string]any) error {
	v := reflect.ValueOf(in).Elem()
	for _, p := range planOf(v.Type()) {
		f := v.FieldByIndex(p.index)
		switch p.from {
		case "json":
			if value, ok := fields[p.name]; ok {
				f.Addr().Interface().(setter).fill(value)
			}
		case "query":
			setText(f, c.Query[p.name])
		case "path":
			setText(f, c.Param(p.name))
		}
	}
	return nil
}

// setText sets a string, or a flag by [Truthy].
func setText(f reflect.Value, s string) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(s)
	case reflect.Bool:
		f.SetBool(Truthy(s))
	default:
		panic(fmt.Sprintf("api: a %s cannot be filled from a URL", f.Type()))
	}
}

// otherText bounds the members of a streamed body that are not streamed.
const otherText = 1 << 20

// Members reads a streamed body, one JSON object, as it arrives. When a member
// of streamed begins, open is called with what was decoded so far in *in, and
// the string goes to the writer it returns in pieces; of equal names the last
// wins, so open may be called again for the same name. A streamed member that
// is no string has state [Wrong]. The other members fill *in. Errors of open
// and of the writer end the reading and are returned as they are.
func (c *Call) Members(in any, streamed []string, open func(name string) (io.Writer, error)) error {
	return c.streamedObject(in, func(s *scanner) func(string) error {
		return c.members(s, in, 1, streamed, open)
	})
}

// Items reads a streamed body, one JSON object, as it arrives, whose member
// list is an array of objects. each is called for every item and must read it
// by [Item.Members]; an item that is no object is read away and comes as nil.
// begin is called when the array begins, and again when another of that name
// follows, since of equal names the last wins. The state of the field of that
// name in *in tells whether there was an array; the other members fill *in.
// Errors of each end the reading and are returned as they are.
func (c *Call) Items(in any, list string, begin func(), each func(*Item) error) error {
	return c.streamedObject(in, func(s *scanner) func(string) error {
		other := c.members(s, in, 1, nil, nil)
		return func(name string) error {
			if name != list {
				return other(name)
			}
			if first, err := s.token(); err != nil || first != '[' {
				return other(name)
			}
			begin()
			err := s.array(2, func() error {
				if first, err := s.token(); err != nil || first != '{' {
					if err := s.skip(2); err != nil {
						return err
					}
					return each(nil)
				}
				return each(&Item{c, s})
			})
			if err != nil {
				return err
			}
			return c.fill(in, map[string]any{name: []any{}})
		}
	})
}

// Item is one object of the array that [Call.Items] reads.
type Item struct {
	c *Call
	s *scanner
}

// Members reads the item as [Call.Members] reads a body.
func (i *Item) Members(in any, streamed []string, open func(name string) (io.Writer, error)) error {
	return i.s.object(3, i.c.members(i.s, in, 3, streamed, open))
}

// streamedObject reads a body that must be one object; reader makes what reads
// each of its members.
func (c *Call) streamedObject(in any, reader func(*scanner) func(string) error) error {
	s := scanStream(c.Body())
	if err := s.more(); errors.Is(err, io.EOF) {
		return c.fill(in, nil)
	}
	first, err := s.token()
	if err != nil {
		return jsonError(err)
	}
	if first != '{' {
		if err = s.skip(0); err == nil {
			err = s.end()
		}
		if err != nil {
			return jsonError(err)
		}
		return notObject()
	}
	if err = s.object(1, reader(s)); err == nil {
		err = s.end()
	}
	return jsonError(err)
}

// members makes what reads the members of an object at a depth into *in.
func (c *Call) members(s *scanner, in any, depth int, streamed []string, open func(string) (io.Writer, error)) func(string) error {
	wanted := namesOf(in)
	bounded := &boundedSource{s: s}
	return func(name string) error {
		if slices.Contains(streamed, name) {
			return c.streamMember(s, in, depth, name, open)
		}
		if !wanted[name] {
			return s.skip(depth)
		}
		bounded.begin()
		v, err := s.value(depth)
		bounded.end()
		if err != nil {
			return err
		}
		return c.fill(in, map[string]any{name: v})
	}
}

func (c *Call) streamMember(s *scanner, in any, depth int, name string, open func(string) (io.Writer, error)) error {
	first, err := s.token()
	if err != nil {
		return err
	}
	if first != '"' {
		var wrong any = false
		if first == 'n' {
			wrong = nil
		}
		if err := s.skip(depth); err != nil {
			return err
		}
		return c.fill(in, map[string]any{name: wrong})
	}
	w, err := open(name)
	if err != nil {
		return err
	}
	if err := s.chunksTo(w); err != nil {
		return err
	}
	return c.fill(in, map[string]any{name: ""})
}

// gathered is how much of a streamed member is handed over at a time: text with
// many escapes comes in very small pieces.
const gathered = 32 << 10

var gatherers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, gathered) }}

// chunksTo reads a string that starts here and writes it in long pieces.
func (s *scanner) chunksTo(w io.Writer) error {
	out := gatherers.Get().(*bufio.Writer)
	out.Reset(w)
	defer func() {
		out.Reset(nil)
		gatherers.Put(out)
	}()
	if err := s.chunks(func(p []byte) error { _, err := out.Write(p); return err }); err != nil {
		return err
	}
	return out.Flush()
}

// boundedSource keeps the members that are held in memory small while the
// streamed one may be huge.
type boundedSource struct {
	s    *scanner
	src  io.Reader
	left int64
}

func (b *boundedSource) begin() {
	b.src, b.left = b.s.src, otherText
	b.s.src = b
}

func (b *boundedSource) end() { b.s.src = b.src }

func (b *boundedSource) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, Invalidf("A field of the request is too long")
	}
	n, err := b.src.Read(p)
	b.left -= int64(n)
	return n, err
}
