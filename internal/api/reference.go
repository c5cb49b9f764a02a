package api

import (
	"fmt"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Reference is the table of endpoints in Markdown, group by group, for the
// README.
func Reference(table []Endpoint) string {
	var out strings.Builder
	out.WriteString("| endpoint | method and path | what it does | scopes |\n|---|---|---|---|\n")
	for _, group := range policy.Groups {
		for i := range table {
			if ep := &table[i]; ep.Group == group {
				out.WriteString(referenceRow(ep))
			}
		}
	}
	return out.String()
}

func referenceRow(ep *Endpoint) string {
	scopes := strings.Join(ep.Scopes, ", ")
	if ep.Anonymous {
		scopes = "none, no token"
	}
	name := "`" + ep.Name + "`"
	if ep.As != "" {
		name = "as `" + ep.As + "`"
	}
	return fmt.Sprintf("| %s | `%s %s` | %s | %s |\n", name, ep.Method, ep.Path, ep.Summary, scopes)
}
