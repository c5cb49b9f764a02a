package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	maxOutline = 1 << 20 // bytes
	maxLabel   = 300     // bytes of a name, a value or a text
	maxIndent  = 64      // levels; what is deeper stands below one another
	// maxRead is how much of a text is looked at. Pages have texts of any length,
	// and each is compared with those inside it.
	maxRead = 8 * maxLabel
)

// Snapshot is an outline of the page as assistive programs see it, one element
// a line, with refs to act on.
type Snapshot struct {
	URL      string `json:"url"`
	Title    string `json:"title"`
	Snapshot string `json:"snapshot" doc:"One line per element: role, name, state, and [ref=eN]."`
	Refs     int    `json:"refs" doc:"How many elements have a ref."`
	Cut      bool   `json:"truncated,omitempty" doc:"There was more than is shown."`
}

// axValue is what is read of a value: the beginning of its text.
type axValue struct{ said string }

// UnmarshalJSON implements [json.Unmarshaler].
func (v *axValue) UnmarshalJSON(b []byte) error {
	var raw struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if json.Unmarshal(raw.Value, &v.said) != nil {
		v.said = string(raw.Value)
	}
	v.said = cut(v.said, maxRead)
	return nil
}

func (v *axValue) text() string {
	if v == nil {
		return ""
	}
	return v.said
}

type axNode struct {
	ID         string   `json:"nodeId"`
	Ignored    bool     `json:"ignored"`
	Role       *axValue `json:"role"`
	Name       *axValue `json:"name"`
	Value      *axValue `json:"value"`
	Properties []struct {
		Name  string  `json:"name"`
		Value axValue `json:"value"`
	} `json:"properties"`
	Children []string `json:"childIds"`
	Parent   string   `json:"parentId"`
	Node     int      `json:"backendDOMNodeId"`
}

// Snapshot takes the outline, of everything or only of what one can act on.
func (p *Page) Snapshot(ctx context.Context, interactive bool) (Snapshot, error) {
	var got struct {
		Nodes []*axNode `json:"nodes"`
	}
	p.mu.Lock()
	loader, named := p.loader, p.refs.clone()
	p.mu.Unlock()
	if err := again(ctx, func() error { return p.call(ctx, "Accessibility.getFullAXTree", nil, &got) }); err != nil {
		return Snapshot{}, err
	}
	o := outlined(got.Nodes, named, interactive)
	p.mu.Lock()
	if p.loader == loader { // else they name elements that have gone
		p.refs = o.named
	}
	url := p.url
	p.mu.Unlock()
	return Snapshot{URL: url, Title: p.title(ctx), Snapshot: o.text.String(), Refs: o.refs, Cut: o.cut}, nil
}

// outline writes a tree. It may take its time, so no lock is held.
type outline struct {
	named refs
	only  bool
	text  strings.Builder
	refs  int
	cut   bool
}

// outlined is the outline of a tree as Chrome tells it, its root first.
func outlined(nodes []*axNode, named refs, only bool) *outline {
	o := &outline{named: named, only: only}
	byID := make(map[string]*axNode, len(nodes))
	for _, n := range nodes {
		byID[n.ID] = n
	}
	// Pages may be nested deeper than a stack should be.
	var left []place
	if len(nodes) > 0 {
		delete(byID, nodes[0].ID)
		left = append(left, place{node: nodes[0]})
	}
	for len(left) > 0 {
		if o.text.Len() > maxOutline {
			o.cut = true
			break
		}
		at := left[len(left)-1]
		left = left[:len(left)-1]
		inside := o.add(at)
		first := len(left)
		for _, id := range at.node.Children {
			if c := byID[id]; c != nil && c.Parent == at.node.ID {
				delete(byID, id) // nothing is there twice
				inside.node = c
				left = append(left, inside)
			}
		}
		slices.Reverse(left[first:])
	}
	return o
}

// place is an element and where it stands in the outline.
type place struct {
	node   *axNode
	indent int
	around string // the name of the element that it is in
}

// silentRoles are roles that say nothing; their children stand for them.
var silentRoles = []string{"", "none", "generic", "RootWebArea", "InlineTextBox", "LineBreak", "presentation", "Section"}

// actingRoles are the roles of what one can act on.
var actingRoles = []string{
	"button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option", "menuitem",
	"menuitemcheckbox", "menuitemradio", "slider", "spinbutton", "switch", "tab", "treeitem", "textarea", "MenuListPopup",
}

// add writes the line of an element, if it has one, and returns where what is in
// it stands.
func (o *outline) add(at place) place {
	n := at.node
	role := n.Role.text()
	if n.Ignored || slices.Contains(silentRoles, role) {
		return at
	}
	name := squeeze(n.Name.text())
	shown := true
	switch {
	case role == "StaticText":
		// What is the name of the element around it has been said.
		shown = !o.only && name != "" && name != at.around
	case o.only:
		shown = slices.Contains(actingRoles, role) || n.flag("editable") != "" || n.flag("focusable") == "true"
	}
	if shown {
		o.line(n, role, name, min(at.indent, maxIndent))
		at.indent++
	}
	at.around = name
	return at
}

func (n *axNode) flag(name string) string {
	for _, p := range n.Properties {
		if p.Name == name {
			return p.Value.text()
		}
	}
	return ""
}

// flags are the states that are shown, with the value that is not worth it.
var shownFlags = []struct{ name, usual string }{
	{"level", ""},
	{"checked", "false"},
	{"pressed", "false"},
	{"selected", "false"},
	{"expanded", ""},
	{"disabled", "false"},
	{"required", "false"},
	{"readonly", "false"},
	{"focused", "false"},
}

func (o *outline) line(n *axNode, role, name string, indent int) {
	o.text.WriteString(strings.Repeat("  ", indent))
	name = short(name)
	if role == "StaticText" {
		fmt.Fprintf(&o.text, "- text: %s\n", name)
		return
	}
	o.text.WriteString("- " + role)
	if name != "" {
		o.text.WriteString(" " + strconv.Quote(name))
	}
	for _, f := range shownFlags {
		if v := n.flag(f.name); v != "" && v != f.usual {
			if v == "true" {
				fmt.Fprintf(&o.text, " [%s]", f.name)
			} else {
				fmt.Fprintf(&o.text, " [%s=%s]", f.name, v)
			}
		}
	}
	if n.Node != 0 {
		o.refs++
		fmt.Fprintf(&o.text, " [ref=e%d]", o.named.name(n.Node))
	}
	if v := short(squeeze(n.Value.text())); v != "" {
		o.text.WriteString(": " + v)
	}
	o.text.WriteByte('\n')
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// short is a text that was squeezed, cut, and without what looks like a ref.
func short(s string) string {
	s = strings.ReplaceAll(s, "[ref=", "[ref ")
	if len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel], "") + "…"
	}
	return s
}
