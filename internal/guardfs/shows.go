package guardfs

import "github.com/agent-sandbox/agent-sandbox-server/policy"

// Shows tells whether the entry name of dir, a resolved path that was
// admitted, may be shown: for those who hear of entries instead of walking to
// them. link says that the entry is a link, or was one for all that is known.
func (g *Guard) Shows(dir, name string, link bool) bool {
	if isTemp(name) || g.rules.DeniesEntry(dir, name) {
		return false
	}
	if !link {
		return true
	}
	if g.rules.SymlinksNever {
		return false
	}
	own := join(dir, name)
	real, _ := resolve(own, readLink)
	return g.decide(own, real, g.roots(), policy.Read).OK()
}
