package policy

import (
	"slices"
	"strings"
)

// EnvSyntax judges the form of a variable: its name is letters, digits and _
// and begins with no digit, its value has no NUL. The refusal is [EnvInvalid].
func EnvSyntax(name, value string) Decision {
	if !isEnvName(name) {
		return Refuse(EnvInvalid, "Invalid environment variable name")
	}
	if strings.IndexByte(value, 0) >= 0 {
		return Refuse(EnvInvalid, "Environment variable "+name+" has a NUL byte in its value")
	}
	return Allow()
}

func isEnvName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// EnvReserved refuses with [EnvVarDenied] the names that belong to the server,
// ABX_ in any case, and when restricted those that could run code past an
// allow list (see [IsLoaderName] and [CommandRules.Restricts]).
func EnvReserved(name string, restricted bool) Decision {
	if hasPrefixFold(name, "ABX_") {
		return Refuse(EnvVarDenied, "Environment variable "+name+" is reserved for the server")
	}
	if restricted && IsLoaderName(name) {
		return Refuse(EnvVarDenied, "Environment variable "+name+" may not be set where commands are restricted")
	}
	return Allow()
}

// loaderNames and loaderPrefixes make a program find other programs or load
// code: the search path, the dynamic linker, and what shells and interpreters
// run or import at their start.
var (
	loaderNames = []string{
		"PATH", "BASH_ENV", "ENV", "IFS", "NODE_OPTIONS",
		"SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR",
		"NODE_PATH", "RUBYOPT", "RUBYLIB", "PERLLIB", "GCONV_PATH",
		"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
		"LESSOPEN", "LESSCLOSE",
		"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES",
	}
	loaderPrefixes = []string{"LD_", "PYTHON", "PERL5", "GIT_", "LUA_"}
)

// IsLoaderName tells whether a variable of that name can make a program run
// or load code that its caller chose, such as PATH, LD_PRELOAD or BASH_ENV.
func IsLoaderName(name string) bool {
	return slices.Contains(loaderNames, name) ||
		slices.ContainsFunc(loaderPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// EnvRules say which variables a call may set or see. The zero EnvRules have
// no lists and know no secrets. They are safe for concurrent use.
type EnvRules struct {
	secret      func(name string) bool
	allow, deny []Glob
	names       []string
}

// NewEnvRules compiles allow_vars and deny_vars (globs; deny wins, an empty
// allow list allows all) and env_deny (exact names). secret, which may be nil,
// names the variables that hold secrets: [Policy.SecretEnv].
func NewEnvRules(allow, deny, envDeny []string, secret func(name string) bool) EnvRules {
	return EnvRules{secret: secret, allow: compileGlobs(allow), deny: compileGlobs(deny), names: envDeny}
}

func compileGlobs(patterns []string) []Glob {
	var globs []Glob
	for _, p := range patterns {
		globs = append(globs, CompileGlob(p))
	}
	return globs
}

// Permits judges the name of a variable that a call sets. The refusal is
// [EnvVarNotAllowed].
func (e EnvRules) Permits(name string) Decision {
	if e.hidden(name) || slices.Contains(e.names, name) || !e.listed(name) {
		return Refuse(EnvVarNotAllowed, "Environment variable "+name+" is not allowed by policy")
	}
	return Allow()
}

// sensitive are the parts of a name that speak of a secret in its value.
var sensitive = []string{"TOKEN", "SECRET", "KEY", "PASSWORD", "CREDENTIAL"}

// sensitiveParts are whole parts of a name, between underscores, that do.
var sensitiveParts = []string{"PASS", "PASSWD", "PASSPHRASE", "COOKIE"}

// harmless names are shown whatever they sound like.
var harmless = []string{"PWD", "OLDPWD", "SSH_AUTH_SOCK"}

// Shows tells whether a variable may be shown to a caller: it is listed, holds
// no secret of the server, its name does not sound like one and its value is
// no URL with a password.
func (e EnvRules) Shows(name, value string) bool {
	switch {
	case e.hidden(name) || !e.listed(name):
		return false
	case slices.Contains(harmless, name):
		return true
	}
	return !soundsSecret(strings.ToUpper(name)) && !hasURLPassword(value)
}

func soundsSecret(upper string) bool {
	if slices.ContainsFunc(sensitive, func(s string) bool { return strings.Contains(upper, s) }) {
		return true
	}
	parts := strings.Split(upper, "_")
	return parts[len(parts)-1] == "AUTH" ||
		slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(sensitiveParts, p) })
}

// hasURLPassword finds "scheme://user:password@" anywhere in a value. People
// put slashes into passwords unescaped, so only what looks like a port and a
// path is none.
func hasURLPassword(value string) bool {
	for {
		_, rest, ok := strings.Cut(value, "://")
		if !ok {
			return false
		}
		value = rest
		if i := strings.IndexAny(rest, " \t\r\n\"'"); i >= 0 {
			rest = rest[:i]
		}
		at := strings.LastIndexByte(rest, '@')
		if at < 0 {
			continue
		}
		user, password, ok := strings.Cut(rest[:at], ":")
		if !ok || password == "" || strings.ContainsAny(user, "/?#") {
			continue
		}
		if port := strings.TrimLeft(password, "0123456789"); len(port) < len(password) && port != "" && strings.IndexByte("/?#", port[0]) >= 0 {
			continue
		}
		return true
	}
}

func (e EnvRules) hidden(name string) bool {
	return hasPrefixFold(name, "ABX_SERVER_") || e.secret != nil && e.secret(name)
}

func (e EnvRules) listed(name string) bool {
	matches := func(g Glob) bool { return g.Match(name) }
	return !slices.ContainsFunc(e.deny, matches) && (len(e.allow) == 0 || slices.ContainsFunc(e.allow, matches))
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// EnvProtected tells whether a variable is the server's and the image's to
// choose, so that calls which set variables for all later programs may not.
func EnvProtected(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "SHELL":
		return true
	}
	return false
}
