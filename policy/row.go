package policy

import "fmt"

// Op is what a call does to a path.
type Op uint8

// The operations a path rule tells apart. The zero Op is Read.
const (
	Read Op = iota
	Write
	Delete
	Exec
)

// String returns the name used in documents and on the wire.
func (o Op) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	case Delete:
		return "delete"
	case Exec:
		return "exec"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// ParseOp is the inverse of [Op.String].
func ParseOp(s string) (Op, bool) {
	for o := Read; o <= Exec; o++ {
		if o.String() == s {
			return o, true
		}
	}
	return 0, false
}

// Groups are the names of all endpoint groups, in the order discovery lists
// them. "agents" has no endpoints here; its name stays valid in documents.
var Groups = []string{"core", "commands", "file_ops", "process", "terminal", "system", "dev_tools", "browser", "agents"}

// Row is everything the world may know about an endpoint: routing, policy
// defaults, discovery and the API document read it, nothing else.
type Row struct {
	// Name is the stable endpoint id; documents, audit and clients use it.
	Name    string
	Method  string // HTTP method, or "WS" for a virtual row
	Path    string // with {param} segments
	Group   string
	Summary string // one short sentence

	Scopes []string // all are needed, unless a rule replaces them
	Limits []string // limits beyond the three every endpoint takes
	Params []string // params a rule may set

	Paths bool // takes a paths rule
	Op    Op   // what it does to a path unless the call says otherwise

	Exec      bool // can run programs
	Mutates   bool // changes something; off in the read-only preset
	Anonymous bool // needs no credential
	Streaming bool // answers a stream
	Virtual   bool // governed and listed, but not a route of the HTTP listener

	// As names the published endpoint whose switch, scopes, limits, params,
	// path rules, rate bucket and audit name count for this route. A row with
	// As is no endpoint of its own: policies and discovery do not see it.
	As string
	// Follows names the published endpoint that must be enabled for this new
	// one to be enabled, unless an exact or glob selector names this one.
	Follows string
}

// ID is the endpoint the row is judged as.
func (r Row) ID() string {
	if r.As != "" {
		return r.As
	}
	return r.Name
}
