package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

var testRows = []policy.Row{
	{Name: "health", Method: "GET", Path: "/health", Group: "core", Anonymous: true},
	{Name: "shell", Method: "POST", Path: "/shell", Group: "process", Scopes: []string{"process:run"}, Exec: true},
}

func TestWhichDocument(t *testing.T) {
	dir := t.TempDir()
	locked := write(t, filepath.Join(dir, "locked.json"), `{"preset":"locked"}`)
	ambient := write(t, filepath.Join(dir, "ambient.json"), `{"preset":"transfer-only"}`)
	none := filepath.Join(dir, "none.json")
	const inline = `{"preset":"read-only"}`
	for _, c := range []struct {
		name                   string
		option, preset         string
		inline, file, standard string
		want                   string
	}{
		{"nothing", "", "", "", "", none, "default"},
		{"standard file", "", "", "", "", ambient, "transfer-only"},
		{"file", "", "", "", locked, ambient, "locked"},
		{"inline", "", "", inline, locked, ambient, "read-only"},
		{"option", locked, "", inline, none, ambient, "locked"},
		{"preset over option", locked, "hardened", inline, "", none, "hardened"},
		{"preset over inline", "", "hardened", inline, "", none, "hardened"},
		{"preset alone", "", "hardened", "", "", none, "hardened"},
	} {
		s := policySource{file: c.option, preset: c.preset, ambient: c.standard, env: newEnviron([]string{
			"ABX_SERVER_POLICY=" + c.inline, "ABX_SERVER_POLICY_FILE=" + c.file,
		})}
		p, err := s.load(testRows)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if p.Preset() != c.want {
			t.Errorf("%s: preset %s, want %s", c.name, p.Preset(), c.want)
		}
	}
}

// --preset used to drop the ambient document with its tokens, which opened the
// server to everybody.
func TestPresetOptionKeepsTheTokens(t *testing.T) {
	s := policySource{preset: "hardened", ambient: "/nonexistent", env: newEnviron([]string{
		`ABX_SERVER_POLICY={"auth":{"tokens":[{"id":"a","scopes":["*"],"token_env":"MINE"}]}}`, "MINE=sesame",
	})}
	p, err := s.load(testRows)
	if err != nil {
		t.Fatal(err)
	}
	if !p.HasTokens() || p.Preset() != "hardened" || len(p.tokenEnv) != 1 || p.tokenEnv[0] != "MINE" {
		t.Errorf("tokens %v, preset %s, from %v", p.HasTokens(), p.Preset(), p.tokenEnv)
	}
	if _, d := p.Authenticate(policy.Credentials{}); d.OK() {
		t.Error("a caller without a token was let in")
	}
	if _, d := p.Authenticate(policy.Credentials{Bearer: []string{"sesame"}}); !d.OK() {
		t.Errorf("the token was refused: %+v", d)
	}
}

func TestPolicyErrors(t *testing.T) {
	dir := t.TempDir()
	big := write(t, filepath.Join(dir, "big.json"), strings.Repeat(" ", maxDocument+1))
	yaml := write(t, filepath.Join(dir, "bad.YML"), "endpoints:\n  nosuch: {enabled: true}\n")
	for _, c := range []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"missing", filepath.Join(dir, "none"), nil, []string{"policy error: ", "none"}},
		{"directory", dir, nil, []string{"policy error: ", dir}},
		{"too big", big, nil, []string{"policy error: ", "big.json"}},
		{"place", yaml, nil, []string{"configuration error: policy.endpoints.nosuch: ", "bad.YML:2:3"}},
		{"schema", "", []string{`ABX_SERVER_POLICY={"versoin":1}`}, []string{"policy error: policy.versoin: ", "version"}},
		{"groups", "", []string{"ABX_SERVER_ENABLED_GROUPS=devtools"}, []string{"configuration error: ABX_SERVER_ENABLED_GROUPS: ", "dev_tools"}},
		{"token", "", []string{`ABX_SERVER_POLICY={"auth":{"tokens":[{"id":"a","scopes":[],"token_env":"GONE"}]}}`}, []string{"configuration error: policy.auth.tokens[0]", "GONE"}},
	} {
		_, err := policySource{file: c.file, ambient: "/nonexistent", env: newEnviron(c.env)}.load(testRows)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want[0]) || !strings.Contains(err.Error(), c.want[1]) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A file that was exchanged for a pipe must not hold up the signals of a
// running server.
func TestReloadDoesNotWaitForAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "p.json")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := policySource{file: fifo, ambient: "/nonexistent", env: newEnviron(nil), reload: true}.load(testRows)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe was taken for a policy")
		}
	case <-time.After(patience):
		t.Fatal("it waits for a writer")
	}
}
