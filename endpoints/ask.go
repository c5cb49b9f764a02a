package endpoints

import (
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Question asks whether a call would be allowed, without making it.
type Question struct {
	Endpoint string
	Paths    []string   // names the call would give
	Op       *policy.Op // what it would do to them; nil is what the endpoint does
}

// Verdict is the answer to a [Question], as callers read it.
type Verdict struct {
	Endpoint string  `json:"endpoint"`
	Allowed  bool    `json:"allowed"`
	Code     *string `json:"code"`
	Reason   *string `json:"reason"`
	Rule     *ruleOf `json:"rule,omitempty"`
}

// ruleOf is shown as its text, or as null when there is none to name.
type ruleOf struct{ name string }

// MarshalJSON writes the rule's name as text.
func (r ruleOf) MarshalJSON() ([]byte, error) {
	if r.name == "" {
		return []byte("null"), nil
	}
	return api.AppendText(nil, r.name), nil
}

// Ask answers as POST /capabilities/check answers who, for callers that are no
// request. It touches no file beyond resolving links.
func Ask(p *policy.Policy, files *guardfs.FS, who policy.Identity, q Question) Verdict {
	return ask(p, who, q, func(rule *policy.Rule) *guardfs.Guard {
		return files.Guard(rule.Paths, p.BaseDir(), nil)
	})
}

// ask asks what the call itself would ask, path by path.
func ask(p *policy.Policy, who policy.Identity, q Question, guard func(*policy.Rule) *guardfs.Guard) Verdict {
	d := p.Decide(who, q.Endpoint)
	if d.OK() {
		rule := p.Rule(q.Endpoint)
		op := rule.Row.Op
		if q.Op != nil {
			op = *q.Op
		}
		for _, path := range q.Paths {
			if d = judgePath(guard(rule), rule, path, op); !d.OK() {
				d.Rule = ""
				break
			}
		}
	}
	return verdict(q.Endpoint, d)
}

func judgePath(g *guardfs.Guard, rule *policy.Rule, path string, op policy.Op) policy.Decision {
	real, err := g.Check(path, op)
	if err != nil {
		return policy.DecisionOf(err)
	}
	if rule.Row.Name == "files_upload_stream" && op == policy.Write {
		return extensionDecision(rule, real)
	}
	return policy.Allow()
}

func verdict(id string, d policy.Decision) Verdict {
	v := Verdict{Endpoint: id, Allowed: d.OK()}
	if d.OK() {
		return v
	}
	code := string(d.Code)
	d.Endpoint = id
	reason := api.Public(d.Err())
	v.Code, v.Reason = &code, &reason
	switch d.Code {
	case policy.EndpointDisabled:
		v.Rule = &ruleOf{d.Rule}
	case policy.MissingScope:
		v.Rule = &ruleOf{}
	}
	return v
}
