package guardfs

import "github.com/agent-sandbox/agent-sandbox-server/policy"

// Quiet is the same view for names that the call did not give, such as where a
// link in a tree leads: nobody is told of the decisions about them.
func (g *Guard) Quiet() *Guard {
	q := *g
	q.saw = nil
	return &q
}

// Permits tells whether the rules let a call read a file that another view has
// opened under the absolute path name. It looks at no file and tells nobody.
func (g *Guard) Permits(name string, i Info) bool {
	if g.rules.DenyHardlinks && i.Kind == File && i.Nlink > 1 {
		return false
	}
	if root, ok := g.named(name); ok && name == i.Path {
		// It was opened by a path without links, so the roots need not be resolved.
		return g.decide(name, name, policy.Roots{root}, policy.Read).OK()
	}
	return g.decide(name, i.Path, g.roots(), policy.Read).OK()
}
