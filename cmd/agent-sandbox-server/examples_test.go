package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExamplesAreTrue runs the shell blocks of the guides, one shell for each
// guide, against a server of their own, and holds what they print to the block
// that follows: JSON may leave members out, text must be the same. What differs
// from run to run (pids, times, ids) is not compared.
func TestExamplesAreTrue(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the examples need curl")
	}
	for _, guide := range []string{"files.md", "processes.md", "commands.md", "dev-tools.md"} {
		t.Run(guide, func(t *testing.T) {
			blocks := shellBlocks(t, "../../docs/"+guide)
			args := []string{"--pty-port", "0"}
			var env []string
			if guide == "dev-tools.md" {
				need(t, "python3")
				env = []string{"ABX_SERVER_ENABLED_GROUPS=dev_tools"}
			}
			for _, file := range filesOf(t, "../../docs/"+guide) {
				switch filepath.Ext(file) {
				case ".mjs":
					need(t, "node")
				case ".py":
					need(t, "python3")
					args = append(args, "--python", realPython(), "--commands", file)
				case ".yaml":
					args = append(args, "--commands", file)
				}
			}
			server := serveProcess(t, env, args...)
			pty := server.log.await(t, `pty=127\.0\.0\.1:(\d+)`)[1]
			here := strings.NewReplacer("127.0.0.1:9000", strings.TrimPrefix(server.url, "http://"), ":9001", ":"+pty)
			there := strings.NewReplacer(server.base, "/home/user")

			var script strings.Builder
			for _, b := range blocks {
				fmt.Fprintf(&script, "%s\nprintf '%s'\n", here.Replace(b.commands), endOfBlock)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			sh := exec.CommandContext(ctx, "sh")
			sh.Stdin, sh.Dir, sh.WaitDelay = strings.NewReader(script.String()), t.TempDir(), time.Second
			sh.Stderr = os.Stderr
			out, err := sh.Output()
			if err != nil {
				t.Errorf("the shell: %v", err)
			}
			printed := strings.Split(there.Replace(string(out)), endOfBlock)
			if len(printed) != len(blocks)+1 {
				t.Fatalf("%d of %d blocks ran to their end; the last printed:\n%s", len(printed)-1, len(blocks), printed[len(printed)-1])
			}
			for i, b := range blocks {
				b.compare(t, printed[i])
			}
		})
	}
}

const endOfBlock = "<end of block>"

// shellBlock are the commands of a guide and what they are said to print.
type shellBlock struct {
	commands string
	kind     string // json, text, or "" when nothing is said
	prints   string
}

func shellBlocks(t *testing.T, file string) []shellBlock {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []shellBlock
	fence := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```\n")
	end := 0
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		kind, body := string(text[m[2]:m[3]]), string(text[m[4]:m[5]])
		between := strings.TrimSpace(string(text[end:m[0]]))
		end = m[1]
		switch {
		case kind == "sh":
			out = append(out, shellBlock{commands: body})
		case between == "" && len(out) > 0 && (kind == "json" || kind == "text"):
			out[len(out)-1].kind, out[len(out)-1].prints = kind, body
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no examples", file)
	}
	return out
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("the examples need " + program)
	}
}

// filesOf writes the files of a guide: blocks below a line that ends with
// their name and a colon. It returns their names.
func filesOf(t *testing.T, guide string) []string {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var out []string
	named := regexp.MustCompile("(?ms)`([\\w./-]+\\.\\w+)`:\n\n```\\w+\n(.*?)^```\n")
	for _, m := range named.FindAllSubmatch(text, -1) {
		name := filepath.Join(dir, string(m[1]))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, m[2], 0o600)); err != nil {
			t.Fatal(err)
		}
		out = append(out, name)
	}
	return out
}

func (b shellBlock) compare(t *testing.T, got string) {
	t.Helper()
	switch b.kind {
	case "json":
		var want, have any
		if err := json.Unmarshal([]byte(b.prints), &want); err != nil {
			t.Errorf("%s\nis answered by what is no JSON in the guide: %v", b.commands, err)
			return
		}
		if err := json.Unmarshal([]byte(got), &have); err != nil {
			t.Errorf("%s\nprinted %q", b.commands, got)
			return
		}
		if why := lacks(have, want, ""); why != "" {
			t.Errorf("%s\nprinted %s\nwhich does not have%s", b.commands, got, why)
		}
	case "text":
		if have, want := steady(got), steady(b.prints); strings.TrimSpace(have) != strings.TrimSpace(want) {
			t.Errorf("%s\nprinted\n%s\nbut the guide has\n%s", b.commands, got, b.prints)
		}
	}
}

// lacks says where have does not have what want does.
func lacks(have, want any, at string) string {
	differs := fmt.Sprintf(" %s = %v", at, want)
	switch want := want.(type) {
	case map[string]any:
		object, _ := have.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, there := object[key]
			if !there {
				return fmt.Sprintf(" %s.%s", at, key)
			}
			if why := lacks(value, want[key], at+"."+key); why != "" {
				return why
			}
		}
		return ""
	case []any:
		list, _ := have.([]any)
		if len(list) != len(want) {
			return differs
		}
		for i := range want {
			if why := lacks(list[i], want[i], fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
		return ""
	case string:
		if text, ok := have.(string); ok && steady(text) == steady(want) {
			return ""
		}
		return differs
	case float64:
		// Small whole numbers mean something; others are pids, sizes and times.
		if n, ok := have.(float64); ok && (n == want || want != math.Trunc(want) || math.Abs(want) > 256) {
			return ""
		}
		return differs
	}
	if !reflect.DeepEqual(have, want) {
		return differs
	}
	return ""
}

// varying are times, ids, and numbers that are larger than those people choose.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)|\b[0-9a-f]{32}\b|\d+\.\d+|\d{4,}|:\d{4,5}\b`)

func steady(text string) string { return varying.ReplaceAllString(text, "#") }

// TestLacksFindsWhatIsMissing keeps the comparison honest.
func TestLacksFindsWhatIsMissing(t *testing.T) {
	have := map[string]any{"a": 1.0, "pid": 4711.0, "list": []any{"x"}, "id": "0123456789abcdef0123456789abcdef", "null": nil}
	for _, want := range []map[string]any{
		{"a": 2.0}, {"b": nil}, {"list": []any{}}, {"list": []any{"y"}}, {"id": "x"}, {"null": false}, {"a": "1"}, {"list": nil},
	} {
		if lacks(have, want, "") == "" {
			t.Errorf("%v is said to have %v", have, want)
		}
	}
	for _, want := range []map[string]any{
		{}, {"a": 1.0, "pid": 999.0}, {"list": []any{"x"}}, {"id": "fedcba9876543210fedcba9876543210"}, {"null": nil},
	} {
		if why := lacks(have, want, ""); why != "" {
			t.Errorf("%v is said to lack%s", have, why)
		}
	}
}
