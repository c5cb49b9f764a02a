package docs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/agent-sandbox/agent-sandbox-server/endpoints"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// workedPolicies is how many examples the guide promises.
const workedPolicies = 10

// TestPoliciesDoWhatTheTextSays compiles every policy in the documents against
// the real endpoints and asks it what the table below it claims.
func TestPoliciesDoWhatTheTextSays(t *testing.T) {
	rows := api.Rows((&endpoints.Server{}).Table())
	worked := 0
	for _, doc := range documents(t) {
		for i, ex := range policiesIn(t, doc) {
			if doc.name == "policy.md" && len(ex.claims) > 0 {
				worked++
			}
			t.Run(doc.name+"/"+strconv.Itoa(i+1)+" "+ex.title, func(t *testing.T) { ex.hold(t, rows) })
		}
	}
	if worked != workedPolicies {
		t.Errorf("policy.md has %d policies with claims, want %d", worked, workedPolicies)
	}
}

// example is a policy in a document with what is claimed about it.
type example struct {
	title  string
	text   string
	format policy.Format
	claims []claim
	lint   string // "" when nothing is claimed, "none", or codes
}

// claim is a row of a table headed "who | endpoint | with | answer": who calls
// what with which path, command, variable, signal or limit, and what comes back.
type claim struct{ who, endpoint, with, answer string }

var (
	claimHead = []string{"who", "endpoint", "with", "answer"}
	lintLine  = regexp.MustCompile(`^Lint: (.*)\.$`)
)

// policyKeys tell a policy from other JSON and YAML in the documents.
var policyKeys = []string{"preset", "groups", "defaults", "auth", "endpoints", "base_dir"}

func policiesIn(t *testing.T, doc document) []example {
	t.Helper()
	var out []example
	title, mine := "", false
	for _, part := range doc.parts {
		switch {
		case part.language != "":
			if mine = isPolicy(part); mine {
				out = append(out, example{title: title, text: part.text, format: formatOf(part)})
			}
		case strings.HasPrefix(part.text, "#"):
			title, mine = strings.TrimLeft(part.text, "# "), false
		case !mine:
		case strings.HasPrefix(part.text, "|"):
			if cells := cellsOf(part.text); len(cells) == len(claimHead) && !slices.Equal(cells, claimHead) && strings.Trim(cells[0], "-") != "" {
				out[len(out)-1].claims = append(out[len(out)-1].claims, claim{cells[0], cells[1], cells[2], cells[3]})
			}
		default:
			if m := lintLine.FindStringSubmatch(part.text); m != nil {
				out[len(out)-1].lint = m[1]
			}
		}
	}
	return out
}

func isPolicy(p part) bool {
	if p.language != "json" && p.language != "yaml" {
		return false
	}
	var top map[string]any
	if yaml.Unmarshal([]byte(p.text), &top) != nil {
		return false
	}
	if _, manifest := top["commands"]; manifest {
		return false
	}
	return slices.ContainsFunc(policyKeys, func(key string) bool { _, has := top[key]; return has })
}

func formatOf(p part) policy.Format {
	if p.language == "yaml" {
		return policy.YAML
	}
	return policy.JSON
}

// cellsOf are the cells of a table's row, without their code marks.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.TrimSpace(c), "`", "")
	}
	return cells
}

func (ex example) hold(t *testing.T, rows []policy.Row) {
	d, err := policy.Parse([]byte(ex.text), ex.format)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(d, rows, policy.Options{Getenv: secretOf, ReadFile: tokenFile})
	if err != nil {
		t.Fatal(err)
	}
	if ex.lint != "" {
		var codes []string
		for _, w := range p.Warnings() {
			code, _, _ := strings.Cut(w, ":")
			if !slices.Contains(codes, code) {
				codes = append(codes, code)
			}
		}
		want := strings.Split(ex.lint, ", ")
		if ex.lint == "none" {
			want = nil
		}
		if !slices.Equal(codes, want) {
			t.Errorf("lint says %q, the text says %q", p.Warnings(), ex.lint)
		}
	}
	for _, c := range ex.claims {
		if got := c.ask(t, p, d); got != c.answer {
			t.Errorf("%s | %s | %s: the answer is %q, the text says %q", c.who, c.endpoint, c.with, got, c.answer)
		}
	}
}

// The tokens of the examples: a variable holds its own name, and so does a
// file, as the sum of it.
func secretOf(name string) string { return name }

func tokenFile(name string) ([]byte, error) {
	sum := sha256.Sum256([]byte(name))
	return []byte("# the token of this file\n" + hex.EncodeToString(sum[:]) + "\n"), nil
}

// exampleToken is what the digests in the documents are the sums of.
const exampleToken = "example-token"

// ask is the code of the answer, or "allowed", or the value of a limit.
func (c claim) ask(t *testing.T, p *policy.Policy, d *policy.Document) string {
	rule := p.Rule(c.endpoint)
	if rule == nil {
		t.Fatalf("there is no endpoint %q", c.endpoint)
	}
	who, decision := c.caller(t, p, d)
	if !rule.Row.Anonymous {
		if !decision.OK() {
			return string(decision.Code)
		}
		if decision := p.Decide(who, c.endpoint); !decision.OK() {
			return string(decision.Code)
		}
	}
	files := guardfs.New(func() string { return "/home/user" }, "/home/user")
	defer files.Close()
	guard := files.Guard(rule.Paths, p.BaseDir(), nil)
	kind, value, _ := strings.Cut(c.with, " ")
	switch kind {
	case "":
		decision = policy.Allow()
	case "read", "write", "delete", "exec":
		op, _ := policy.ParseOp(kind)
		v := endpoints.Ask(p, files, who, endpoints.Question{Endpoint: c.endpoint, Paths: []string{value}, Op: &op})
		if !v.Allowed {
			return *v.Code
		}
	case "run":
		decision = run(t, rule, guard, value)
	case "variable":
		decision = variable(p, rule, value)
	case "signal":
		n, _ := strconv.ParseInt(value, 10, 64)
		if allowed, set := rule.Ints("allowed_signals"); set && !slices.Contains(allowed, n) {
			return string(policy.SignalNotAllowed)
		}
	case "shell":
		if allowed, set := rule.Strings("shells"); set && !slices.Contains(allowed, value) {
			return string(policy.ShellNotAllowed)
		}
	case "limit":
		if n, ok := rule.Seconds(value); ok {
			return strconv.FormatFloat(n, 'f', -1, 64)
		}
		return "none"
	case "audit":
		return string(rule.Audit)
	default:
		t.Fatalf("%q is nothing this test can ask", c.with)
	}
	return string(decision.Code)
}

// caller presents the token of the named identity.
func (c claim) caller(t *testing.T, p *policy.Policy, d *policy.Document) (policy.Identity, policy.Decision) {
	var held policy.Credentials
	switch c.who {
	case "nobody": // no token
	case "a wrong token":
		held.Bearer = []string{"wrong"}
	default:
		for _, token := range append(d.TokenEnv(), exampleToken, "/run/secrets/"+c.who) {
			if who, decision := p.Authenticate(policy.Credentials{Bearer: []string{token}}); decision.OK() && who.ID == c.who {
				return who, decision
			}
		}
		t.Fatalf("no token of %q is known", c.who)
	}
	return p.Authenticate(held)
}

// run asks about a command as the server does, on a machine whose programs are
// all in /usr/bin.
func run(t *testing.T, rule *policy.Rule, guard *guardfs.Guard, line string) policy.Decision {
	argv, err := policy.SplitWords(line)
	if err != nil {
		t.Fatal(err)
	}
	const bin, home = "/usr/bin/", "/home/user"
	file := argv[0]
	switch {
	case !strings.Contains(file, "/"):
		file = bin + file
	case !path.IsAbs(file):
		file = path.Join(home, file)
	}
	return rule.Command.Decide(policy.CommandQuery{
		Argv: argv, File: file, Real: file,
		OnServerPath: func(name, real string) bool { return real == bin+name },
		ResolvePath: func(arg string) (string, policy.Decision) {
			if !path.IsAbs(arg) {
				arg = path.Join(home, arg)
			}
			real, err := guard.Check(arg, policy.Exec)
			if d, ok := err.(*policy.Denied); ok { //nolint:errorlint // as the guard returns it
				return "", d.Decision
			}
			return real, policy.Allow()
		},
	}).Decision
}

// variable asks whether env_get shows it, env_set may set it, or a call may
// pass it on.
func variable(p *policy.Policy, rule *policy.Rule, name string) policy.Decision {
	allow, _ := rule.Strings("allow_vars")
	deny, _ := rule.Strings("deny_vars")
	exact, _ := rule.Strings("env_deny")
	rules := policy.NewEnvRules(allow, deny, exact, p.SecretEnv)
	if rule.Row.Name == "env_get" {
		if rules.Shows(name, "") {
			return policy.Allow()
		}
		return policy.Decision{Code: "hidden"}
	}
	if d := policy.EnvReserved(name, rule.Command.Restricts()); !d.OK() {
		return d
	}
	return rules.Permits(name)
}

// document is a Markdown file, cut into lines of text and fenced blocks.
type document struct {
	name  string
	parts []part
}

// part is one line of text, or a fenced block with its language.
type part struct {
	language string // "" for text; "-" for a fence without one
	text     string
}

func documents(t *testing.T) []document {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	var out []document
	for _, name := range append(names, "../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, document{name, partsOf(text)})
	}
	return out
}

func partsOf(text []byte) []part {
	var out []part
	var block *part
	for line := range bytes.Lines(text) {
		l := strings.TrimRight(string(line), "\n")
		fence, isFence := strings.CutPrefix(l, "```")
		switch {
		case isFence && block == nil:
			if fence == "" {
				fence = "-"
			}
			block = &part{language: fence}
		case isFence:
			out, block = append(out, *block), nil
		case block != nil:
			block.text += l + "\n"
		default:
			out = append(out, part{text: l})
		}
	}
	return out
}
