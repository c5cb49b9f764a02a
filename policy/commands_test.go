package policy

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// A system of a few programs: names below /usr/bin, /bin is a link to it, and
// PATH is /usr/bin. The working directory is /base.
var programs = []string{"ls", "cat", "echo", "true", "printf", "sleep", "test", "id", "expr", "env", "git", "find", "tar"}

func query(command string) CommandQuery {
	argv, err := SplitWords(command)
	if err != nil {
		panic(err)
	}
	q := CommandQuery{
		Argv:         argv,
		OnServerPath: func(name, real string) bool { return slices.Contains(programs, name) && real == "/usr/bin/"+name },
		ResolvePath:  resolveInBase,
	}
	switch {
	case strings.Contains(argv[0], "/"):
		q.File = argv[0]
		if !path.IsAbs(q.File) {
			q.File = "/base/" + q.File
		}
		q.File = path.Clean(q.File)
	case slices.Contains(programs, argv[0]):
		q.File = "/usr/bin/" + argv[0]
	}
	q.Real = q.File
	if rest, ok := strings.CutPrefix(q.Real, "/bin/"); ok {
		q.Real = "/usr/bin/" + rest
	}
	return q
}

func resolveInBase(arg string) (string, Decision) {
	if !path.IsAbs(arg) {
		arg = "/base/" + arg
	}
	arg = path.Clean(arg)
	if arg == "/base/link" {
		arg = "/etc/passwd"
	}
	return arg, NewPathRules(nil, nil, false, false, false).Decide(arg, arg, []Root{{"/base", "/base"}}, Exec)
}

func mustCommands(t testing.TB, allow, deny []string) *CommandRules {
	t.Helper()
	c, err := NewCommandRules(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verdicts(t *testing.T, c *CommandRules, want Code, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if got := c.Decide(query(command)); got.Code != want {
			t.Errorf("%s: %q, want %q", command, got.Code, want)
		}
	}
}

func TestAllowCommands(t *testing.T) {
	c := mustCommands(t, []string{
		"ls", "echo {int}", "echo w {word}", "echo g*", "cat {path}", "printf ... end", "expr {int} + {int}",
		"/usr/bin/en?", "test -n x*", "test ... mid ... -z", "echo a/*", "find -*", "echo {x}",
	}, nil)
	verdicts(t, c, Allowed,
		"ls /", "ls", "ls any thing", "echo 5", "echo 123456789", "echo w a.b=c", "echo w _", "echo w 9@:+,-", "echo good", "echo g",
		"printf x y end", "printf end", "expr 1 + 2", "/usr/bin/env", "/usr/bin/env x", "/bin/ls", "/usr/bin/../bin/ls",
		"cat sub/f", "test -n xyz", "test mid -z", "test a mid mid b -z", "echo a/b", "find -n", "echo {x}", "cat /base")
	verdicts(t, c, CommandNotAllowed,
		"LS", "id", "echo", "echo -5", "echo 1234567890", "echo 5 6", "echo w -x", "echo w a/b", "echo w", "echo w ''", "echo g/x", "echo g..x",
		"printf x", "printf end x", "expr 1 + x", "cat -n f", "cat -n", "cat ''", "/bin/id", "env", "test -n x/y", "test mid", "test -z mid",
		"find -/x", "echo a/../b", "missing", "/usr/bin/ls/x")
	verdicts(t, c, PathNotAllowed, "cat /etc/passwd", "cat ../x", "cat link")
	if !c.Restricts() || (&CommandRules{}).Restricts() {
		t.Error("Restricts is wrong")
	}
}

func TestDenyCommandsWin(t *testing.T) {
	c := mustCommands(t, []string{"id", "echo ...", "ls ...", "true"},
		[]string{"id", "echo bad ...", "ls -R ...", "/usr/bin/env", "ls {path} x"})
	verdicts(t, c, CommandNotAllowed,
		"id", "/usr/bin/id", "/bin/id", "./id", "id -u", "echo bad", "echo bad x", "ls -R", "ls -R /nope", "ls -Rl /nope",
		"/usr//bin/env", "/bin/env", "env", "ls /etc x", "other")
	verdicts(t, c, Allowed, "echo good bad", "ls -l /", "true", "ls -l -R")
	verdicts(t, mustCommands(t, nil, []string{"id"}), Allowed, "ls", "./anything", "missing")
	verdicts(t, mustCommands(t, nil, []string{"id"}), CommandNotAllowed, "/base/sub/id")
}

func TestDenyPushCatchesOnlyPlainPush(t *testing.T) {
	c := mustCommands(t, nil, []string{"git push ..."})
	verdicts(t, c, CommandNotAllowed, "git push", "git push origin")
	verdicts(t, c, Allowed, "git -C /x push", "git pull")
}

func TestEmptyAllowListIsNoRestriction(t *testing.T) {
	for _, c := range []*CommandRules{{}, mustCommands(t, []string{}, nil)} {
		verdicts(t, c, Allowed, "anything at all", "./x")
	}
	if got := new(CommandRules).Decide(CommandQuery{}); got.OK() {
		t.Error("no command at all is allowed")
	}
}

func TestGroupedFlagsAreSplitForMatchingOnly(t *testing.T) {
	c := mustCommands(t, []string{"ls -l ...", "cat -n {path}", "tar -xzf {word}", "find {word} -name {word}"}, nil)
	got := c.Decide(query("ls -laR x"))
	if !got.OK() || !slices.Equal(got.Argv, []string{"ls", "-laR", "x"}) {
		t.Errorf("%q %q", got.Code, got.Argv)
	}
	verdicts(t, c, Allowed, "cat -n f", "ls -l", "tar -xzf a", "find d -name n")
	verdicts(t, c, CommandNotAllowed, "ls -al", "ls --la", "ls -l1a2 -", "cat -nv f", "ls")
	verdicts(t, mustCommands(t, []string{"cat -a -b {path}"}, nil), CommandNotAllowed, "cat -ab f")
	verdicts(t, c, CommandInvalid, "ls -"+strings.Repeat("R", maxExpanded))
}

func TestAllowListMeansTheRealProgram(t *testing.T) {
	c := mustCommands(t, []string{"ls", "/usr/bin/*"}, nil)
	verdicts(t, c, Allowed, "ls /", "/bin/ls /", "/usr/bin/ls", "/usr/bin/id", "../usr/bin/id")
	verdicts(t, c, CommandNotAllowed, "/base/ls", "./ls", "/usr/bin/../../base/ls", "/usr/bin/../../base/x", "sub/../ls", "id")

	// Found elsewhere though the name is bare, as by a search path of the caller.
	q := query("ls")
	q.File, q.Real = "/base/ls", "/base/ls"
	if d := c.Decide(q); d.Code != CommandNotAllowed {
		t.Errorf("ls found as /base/ls: %q", d.Code)
	}
	// A link to the very program is that program.
	q = query("/base/ls")
	q.Real = "/usr/bin/ls"
	if d := c.Decide(q); !d.OK() {
		t.Errorf("a link to ls: %q", d.Code)
	}
	// The same link under another name is not what was allowed.
	q = query("/base/other")
	q.Real = "/usr/bin/ls"
	if d := c.Decide(q); d.OK() {
		t.Error("another name for ls is allowed")
	}
	q = query("ls")
	q.OnServerPath = nil
	if d := c.Decide(q); d.OK() {
		t.Error("allowed without knowing the server's programs")
	}
	// What is not there is not refused for its name, but a place must be real.
	verdicts(t, mustCommands(t, []string{"missing"}, nil), Allowed, "missing")
	verdicts(t, mustCommands(t, []string{"missing"}, nil), CommandNotAllowed, "./missing")
	verdicts(t, mustCommands(t, nil, []string{"{word} x", "{int} y", "{path} z"}), CommandNotAllowed, "ls x", "./ls x", "5 y", "/base/q z")
	verdicts(t, mustCommands(t, nil, []string{"{word} x", "{int} y", "{path} z"}), Allowed, "ls y", "ls")
	verdicts(t, mustCommands(t, []string{"*"}, nil), Allowed, "ls", "/bin/id")
	verdicts(t, mustCommands(t, []string{"*"}, nil), CommandNotAllowed, "/base/ls", "./x")
	verdicts(t, mustCommands(t, []string{"{word} x"}, nil), Allowed, "ls x")
	verdicts(t, mustCommands(t, []string{"{word} x"}, nil), CommandNotAllowed, "./ls x", "ls y")
}

func TestPlacesOfPrograms(t *testing.T) {
	verdicts(t, mustCommands(t, []string{"./run.sh"}, nil), Allowed, "./run.sh", ".//run.sh", "./a/../run.sh")
	verdicts(t, mustCommands(t, []string{"./run.sh"}, nil), CommandNotAllowed, "run.sh", "../run.sh", "./a/run.sh", "/base/run.sh")
	verdicts(t, mustCommands(t, []string{"bin/*"}, nil), Allowed, "bin/x", "./bin/x")
	verdicts(t, mustCommands(t, []string{"bin/*"}, nil), CommandNotAllowed, "bin/../x", "/bin/x")
	verdicts(t, mustCommands(t, []string{"/base//tools/./x"}, nil), Allowed, "/base/tools/x", "tools/x")
	verdicts(t, mustCommands(t, []string{"... ok"}, nil), Allowed, "/base/x ok", "ls a ok")
	verdicts(t, mustCommands(t, []string{"..."}, nil), Allowed, "/base/x", "ls a")
}

func TestPathTokenUsesWhatWasChecked(t *testing.T) {
	c := mustCommands(t, []string{"cat {path}", "test {path} ... {path}"}, nil)
	got := c.Decide(query("cat sub/../f"))
	if !got.OK() || !slices.Equal(got.Argv, []string{"cat", "/base/f"}) {
		t.Errorf("%q %q", got.Code, got.Argv)
	}
	q := query("test a b c")
	got = c.Decide(q)
	if !got.OK() || !slices.Equal(got.Argv, []string{"test", "/base/a", "b", "/base/c"}) || q.Argv[1] != "a" {
		t.Errorf("%q %q, query %q", got.Code, got.Argv, q.Argv)
	}
	// Another pattern may still allow what the path rules refuse.
	both := mustCommands(t, []string{"cat {path}", "cat /etc/hostname"}, nil)
	verdicts(t, both, Allowed, "cat /etc/hostname")
	verdicts(t, both, PathNotAllowed, "cat /etc/passwd")
	q = query("cat f")
	q.ResolvePath = nil
	if d := c.Decide(q); d.Code != CommandNotAllowed {
		t.Errorf("nobody to resolve it: %q", d.Code)
	}
}

func TestPathTokenForTheProgram(t *testing.T) {
	c := mustCommands(t, []string{"{path} go"}, nil)
	got := c.Decide(query("./tool go"))
	if !got.OK() || !slices.Equal(got.Argv, []string{"/base/tool", "go"}) {
		t.Errorf("%q %q", got.Code, got.Argv)
	}
	verdicts(t, c, PathNotAllowed, "/usr/bin/ls go")
	verdicts(t, c, CommandNotAllowed, "ls go", "./tool")
	q := query("./tool go")
	q.Real = "/elsewhere/tool" // resolved another way than the argument
	if d := c.Decide(q); d.OK() {
		t.Error("the file to run is not the one the path rules saw")
	}
}

func TestMalformedPatternsAreRefusedAtLoad(t *testing.T) {
	for _, p := range []string{"", "  ", "'x", `"x`, `x\`, "''", "'' x", "a ... ... ... ...", "a\x00"} {
		if _, err := NewCommandRules([]string{"ls", p}, nil); err == nil {
			t.Errorf("allow %q is taken", p)
		}
		if _, err := NewCommandRules(nil, []string{p}); err == nil {
			t.Errorf("deny %q is taken", p)
		}
	}
	for _, p := range []string{"a ... ... ...", "... a", "{int}", "[", "a '*'"} {
		mustCommands(t, []string{p}, []string{p})
	}
}

func FuzzCommandRules(f *testing.F) {
	for _, s := range [][2]string{
		{"ls", "/bin/ls x"},
		{"echo {int}", "echo 5"},
		{"printf ... x ... end", "printf a x x end"},
		{"ls -R ...", "ls -lR"},
		{"[e]cho g*", "echo g-"},
		{"*/ls -?", "/base/ls -l"},
		{"./a {word}", "./a b"},
		{"... {int}", "ls 1"},
		{"{word} ...", "id -ab"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, command string) {
		if len(pattern) > 60 || len(command) > 60 {
			return
		}
		allow, err := NewCommandRules([]string{pattern}, nil)
		if err != nil {
			return
		}
		if _, err := SplitWords(command); err != nil {
			return
		}
		q := query(command)
		if q.Argv[0] == "" || strings.Contains(pattern, "{path}") {
			return
		}
		program, args := slowCommand(pattern, q.Argv)
		got := allow.Decide(q)
		if want := args && slowAdmits(program, q); got.OK() != want {
			t.Errorf("allow %q: %q: %q, want %v", pattern, command, got.Code, want)
		}
		if got.OK() && !slices.Equal(got.Argv, q.Argv) {
			t.Errorf("allow %q: %q became %q", pattern, q.Argv, got.Argv)
		}
		// What an allow pattern admits, the same deny pattern refuses.
		refused := mustCommands(t, nil, []string{pattern}).Decide(q)
		if got.OK() && refused.OK() {
			t.Errorf("deny %q lets %q through", pattern, command)
		}
		if !args && !refused.OK() {
			t.Errorf("deny %q refuses %q", pattern, command)
		}
	})
}

// slowCommand gives the pattern's program token and whether the rest of the
// pattern takes the arguments, as written or with grouped flags split.
func slowCommand(pattern string, argv []string) (program string, ok bool) {
	tokens, _ := SplitWords(pattern)
	if len(tokens) == 1 && tokens[0] != "..." && !strings.HasPrefix(tokens[0], "{") {
		return tokens[0], true
	}
	split := argv[:1:1]
	for _, arg := range argv[1:] {
		letters := strings.TrimPrefix(arg, "-")
		if len(letters) < 2 || letters == arg || strings.Trim(letters, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			split = append(split, arg)
			continue
		}
		for _, c := range letters {
			split = append(split, "-"+string(c))
		}
	}
	if tokens[0] == "..." {
		return tokens[0], slowTokens(tokens, argv) || slowTokens(tokens, split)
	}
	return tokens[0], slowTokens(tokens[1:], argv[1:]) || slowTokens(tokens[1:], split[1:])
}

// slowTokens tries every way to share the arguments out.
func slowTokens(tokens, argv []string) bool {
	switch {
	case len(tokens) == 0:
		return len(argv) == 0
	case tokens[0] == "...":
		return slowTokens(tokens[1:], argv) || len(argv) > 0 && slowTokens(tokens, argv[1:])
	case len(argv) == 0:
		return false
	}
	return slowToken(tokens[0], argv[0]) && slowTokens(tokens[1:], argv[1:])
}

func slowToken(token, arg string) bool {
	const word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	switch {
	case token == "{int}":
		return arg != "" && len(arg) < 10 && strings.Trim(arg, "0123456789") == ""
	case token == "{word}":
		return arg != "" && strings.Contains(word, arg[:1]) && strings.Trim(arg, word+".@:+=,-") == ""
	case !strings.ContainsAny(token, "*?["):
		return token == arg
	}
	for _, s := range []string{"/", ".."} {
		if strings.Contains(arg, s) && !strings.Contains(token, s) {
			return false
		}
	}
	return (arg == "" || arg[0] != '-' || token[0] == '-') && slowGlob(token, arg)
}

func slowAdmits(program string, q CommandQuery) bool {
	argv0 := q.Argv[0]
	name := path.Base(path.Clean(argv0))
	bySystem := q.Real == "/usr/bin/"+name && slices.Contains(programs, name)
	matches := func(s string) bool {
		if program == "{int}" || program == "{word}" {
			return slowToken(program, s)
		}
		return slowGlob(program, s)
	}
	switch {
	case program == "...":
		return true
	case !strings.Contains(argv0, "/"):
		return !strings.Contains(program, "/") && matches(argv0) && (bySystem || q.Real == "")
	case !strings.Contains(program, "/"):
		return matches(name) && bySystem
	}
	// Places are compared without dots and doubled slashes.
	relative := "./" + path.Clean(argv0)
	if path.IsAbs(argv0) || relative == "./." || relative == "./.." || strings.HasPrefix(relative, "./../") {
		relative = ""
	}
	switch clean := path.Clean(program); {
	case strings.Contains(program, "["):
	case path.IsAbs(program):
		program = clean
	case program[0] != '*' && clean != "." && clean != ".." && !strings.HasPrefix(clean, "../"):
		program = "./" + clean
	}
	return matches(q.File) || relative != "" && matches(relative)
}
