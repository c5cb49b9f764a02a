package devtools

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Git runs git on behalf of callers, on repositories whose settings may have
// been written by anybody: nothing in a repository makes git run a program,
// open a connection or read what lies outside the allowed directories. It is
// safe for concurrent use.
type Git struct {
	procs *proc.Manager
	// edits keeps changes of configuration files apart.
	edits chan struct{}

	mu    sync.Mutex
	taken map[place]bool // directories that repositories are being made in
}

// NewGit makes a Git whose programs m starts.
func NewGit(m *proc.Manager) *Git {
	return &Git{procs: m, edits: make(chan struct{}, 1), taken: map[place]bool{}}
}

// Caller is on whose behalf git runs.
type Caller struct {
	// Guard has the path rules; Op is what paths are judged for.
	Guard *guardfs.Guard
	Op    policy.Op
	// Denies says that the rules deny some files that are in the allowed
	// directories, so that files of a repository have to be judged one by one.
	Denies bool
	// Env is the environment of the server's own programs.
	Env map[string]string
}

var (
	// ErrGitMissing says that there is no git program.
	ErrGitMissing = errors.New("git is not installed")
	// ErrGitTimeout says that git took too long.
	ErrGitTimeout = errors.New("git timed out")
)

// GitError is a failure that git, or what stands for it here, can explain to
// the caller in one line.
type GitError struct {
	Msg string
	// Auth says that credentials are missing or were refused.
	Auth bool
}

func (e *GitError) Error() string { return e.Msg }

func gitErrorf(text string) error { return &GitError{Msg: text} }

const (
	// localTimeout bounds a call of git that touches no network.
	localTimeout = 30 * time.Second
	// gitOutput bounds what is kept of the output of a call that is not read
	// as it comes.
	gitOutput = 10 << 20
)

// fixed are settings that hold for every run, also in programs that git starts
// for itself. What a repository says about them is not read in the first place.
var fixed = []setting{
	{section: "core", name: "fsmonitor", value: "false"},
	{section: "core", name: "hookspath", value: "/dev/null"},
	{section: "core", name: "pager", value: "cat"},
	{section: "core", name: "askpass", value: ""},
	{section: "core", name: "attributesfile", value: "/dev/null"},
	{section: "core", name: "excludesfile", value: "/dev/null"},
	{section: "core", name: "quotepath", value: "false"},
	{section: "color", name: "ui", value: "false"},
	{section: "credential", name: "helper", value: ""},
	{section: "diff", name: "external", value: ""},
	{section: "gc", name: "auto", value: "0"},
	{section: "maintenance", name: "auto", value: "false"},
	{section: "commit", name: "gpgsign", value: "false"},
	{section: "tag", name: "gpgsign", value: "false"},
	{section: "push", name: "gpgsign", value: "false"},
	{section: "log", name: "showsignature", value: "false"},
	{section: "i18n", name: "logoutputencoding", value: "UTF-8"},
	{section: "submodule", name: "recurse", value: "false"},
	{section: "fetch", name: "recursesubmodules", value: "false"},
	{section: "push", name: "recursesubmodules", value: "no"},
	{section: "http", name: "savecookies", value: "false"},
	{section: "safe", name: "directory", value: "*"},
}

// dropped are variables that lead programs of git to run others.
var dropped = []string{
	"EDITOR", "VISUAL", "PAGER", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "LANGUAGE",
	"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "CURL_HOME",
}

// environment is what every git sees.
func environment(from map[string]string) map[string]string {
	env := maps.Clone(from)
	maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, "GIT_") })
	for _, name := range dropped {
		delete(env, name)
	}
	maps.Copy(env, map[string]string{
		"LC_ALL":                 "C",
		"GIT_CONFIG_NOSYSTEM":    "1",
		"GIT_CONFIG_SYSTEM":      "/dev/null",
		"GIT_CONFIG_GLOBAL":      "/dev/null",
		"GIT_ATTR_NOSYSTEM":      "1",
		"GIT_OPTIONAL_LOCKS":     "0",
		"GIT_TERMINAL_PROMPT":    "0",
		"GIT_ASKPASS":            "",
		"GIT_EDITOR":             "false",
		"GIT_SEQUENCE_EDITOR":    "false",
		"GIT_PAGER":              "cat",
		"GIT_NO_LAZY_FETCH":      "1",
		"GIT_ALLOW_PROTOCOL":     "none",
		"GIT_PROTOCOL_FROM_USER": "0",
	})
	return env
}

// addSettings gives settings to git by its environment: they are in nobody's
// list of processes, and keys may hold any character.
func addSettings(env map[string]string, settings []setting) {
	for i, s := range settings {
		key := s.section + "." + s.name
		if s.hasSub {
			key = s.section + "." + s.sub + "." + s.name
		}
		n := strconv.Itoa(i)
		env["GIT_CONFIG_KEY_"+n], env["GIT_CONFIG_VALUE_"+n] = key, s.value
	}
	env["GIT_CONFIG_COUNT"] = strconv.Itoa(len(settings))
}

// invocation is one run of git.
type invocation struct {
	args  []string
	env   map[string]string // over the environment of all
	more  []setting         // over the fixed settings
	stdin []byte
	files []*os.File
	dir   *os.File // nil is "/"

	timeout   time.Duration // 0 is localTimeout
	killGrace time.Duration
}

func (v *invocation) spec(from map[string]string) (proc.Spec, error) {
	path, err := proc.LookPath("git", from["PATH"], "/")
	if err != nil {
		return proc.Spec{}, ErrGitMissing
	}
	env := environment(from)
	addSettings(env, append(slices.Clip(fixed), v.more...))
	maps.Copy(env, v.env)
	spec := proc.Spec{
		Path: path, Argv: append([]string{"git"}, v.args...), Dir: "/", DirFile: v.dir, Files: v.files,
		Timeout: localTimeout, KillGrace: v.killGrace,
	}
	for name, value := range env {
		spec.Env = append(spec.Env, name+"="+value)
	}
	if v.timeout > 0 {
		spec.Timeout = v.timeout
	}
	if v.stdin != nil {
		spec.Stdin = proc.InputBytes(v.stdin)
	}
	return spec, nil
}

// run runs git to its end. A git that fails is a *GitError.
func (g *Git) run(ctx context.Context, from map[string]string, v *invocation) (proc.Result, error) {
	spec, err := v.spec(from)
	if err != nil {
		return proc.Result{}, err
	}
	res, err := g.procs.Run(ctx, spec, gitOutput)
	if err != nil {
		return res, startFailure(err)
	}
	return res, ended(ctx, res.Status, res.Stderr)
}

// startFailure tells a git that vanished from one that cannot be started.
func startFailure(err error) error {
	if errors.Is(err, proc.ErrNotFound) || errors.Is(err, proc.ErrNotExecutable) {
		return ErrGitMissing
	}
	return err
}

// ended is the error of a git that has ended.
func ended(ctx context.Context, st proc.Status, stderr []byte) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case st.Reason == proc.ReasonTimeout:
		return ErrGitTimeout
	case st.Code != 0:
		return explain(stderr)
	}
	return nil
}

const (
	maxExplanation = 250 // bytes
	noExplanation  = "git failed"
)

var (
	urlUser      = lazyregexp.New(`([A-Za-z][A-Za-z0-9+.-]*://)[^/@\s]*@`)
	authFailures = []string{
		"Authentication failed", "could not read Username", "could not read Password", "terminal prompts disabled",
		"Permission denied (", "Invalid username or password", "invalid credentials", "returned error: 401", "returned error: 403",
	}
)

// explain makes an error of what git wrote: its first complaint, in one line,
// without anybody's credentials.
func explain(stderr []byte) error {
	e := &GitError{}
	for line := range bytes.Lines(stderr) {
		text := strings.TrimSpace(string(line))
		for _, f := range authFailures {
			e.Auth = e.Auth || strings.Contains(text, f)
		}
		for _, lead := range []string{"fatal: ", "error: ", "remote: "} {
			if rest, ok := strings.CutPrefix(text, lead); ok && rest != "" && (e.Msg == "" || lead == "fatal: ") {
				e.Msg = rest
				break
			}
		}
		if strings.HasPrefix(text, "fatal: ") {
			break
		}
	}
	if e.Msg == "" {
		first, _, _ := strings.Cut(strings.TrimSpace(string(stderr)), "\n")
		e.Msg = first
	}
	if e.Msg == "" {
		e.Msg = noExplanation
	}
	e.Msg = shortLine(withoutUser(e.Msg))
	return e
}

// withoutUser takes users and passwords out of the URLs in a text; the user of
// an ssh address, which is no secret, stays.
func withoutUser(text string) string {
	return urlUser.ReplaceAllStringFunc(text, func(found string) string {
		scheme, user, _ := strings.Cut(strings.TrimSuffix(found, "@"), "://")
		if strings.EqualFold(scheme, "ssh") {
			user, _, _ = strings.Cut(user, ":")
			return scheme + "://" + user + "@"
		}
		return scheme + "://"
	})
}

// shortLine is text without control characters, cut to what one line holds.
func shortLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxExplanation {
		return text
	}
	text = text[:maxExplanation]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
