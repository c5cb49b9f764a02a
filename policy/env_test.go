package policy

import "testing"

func TestEnvSyntax(t *testing.T) {
	for _, name := range []string{"A", "_", "a1", "MY_VAR", "path"} {
		if d := EnvSyntax(name, "any\nthing é \xff"); !d.OK() {
			t.Errorf("%q: %q", name, d.Code)
		}
	}
	for _, name := range []string{"", "1A", "A B", "A=B", "A-B", "É", "A\x00", "BASH_FUNC_x%%", "A\n", "A["} {
		if d := EnvSyntax(name, ""); d.Code != EnvInvalid {
			t.Errorf("%q: %q", name, d.Code)
		}
	}
	if d := EnvSyntax("A", "a\x00"); d.Code != EnvInvalid {
		t.Errorf("a NUL in the value: %q", d.Code)
	}
}

func TestReservedVariables(t *testing.T) {
	for _, name := range []string{"ABX_X", "abx_x", "Abx_SERVER_TOKEN", "ABX_"} {
		for _, restricted := range []bool{false, true} {
			if d := EnvReserved(name, restricted); d.Code != EnvVarDenied {
				t.Errorf("%s, restricted %v: %q", name, restricted, d.Code)
			}
		}
	}
	for _, name := range []string{"ABX", "MY_ABX_", "A"} {
		if d := EnvReserved(name, true); !d.OK() {
			t.Errorf("%s: %q", name, d.Code)
		}
	}
}

// Beside an allow list no variable may lead a program to other code.
func TestLoaderVariablesAreRefusedBesideAnAllowList(t *testing.T) {
	for _, name := range []string{
		"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "IFS", "PYTHONPATH", "PYTHONSTARTUP",
		"NODE_OPTIONS", "PERL5LIB", "PERL5OPT", "GIT_SSH_COMMAND", "GIT_DIR", "RUBYOPT", "JAVA_TOOL_OPTIONS",
		"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES",
	} {
		if d := EnvReserved(name, true); d.Code != EnvVarDenied || !IsLoaderName(name) {
			t.Errorf("%s: %q", name, d.Code)
		}
		if d := EnvReserved(name, false); !d.OK() {
			t.Errorf("%s without an allow list: %q", name, d.Code)
		}
	}
	for _, name := range []string{"path", "ENVIRONMENT", "MY_PATH", "LANG", "TERM", "HOME", "GITHUB_SHA", "BUILD_ID"} {
		if d := EnvReserved(name, true); !d.OK() {
			t.Errorf("%s: %q", name, d.Code)
		}
	}
}

func TestVariableLists(t *testing.T) {
	secret := func(name string) bool { return name == "MY_HIDDEN" }
	for _, c := range []struct {
		allow, deny, names []string
		yes, no            []string
	}{
		{nil, nil, nil, []string{"A", "PATH"}, []string{"MY_HIDDEN", "abx_server_x"}},
		{[]string{"PA*", "MY_*"}, []string{"MY_S*"}, nil, []string{"PATH", "MY_A"}, []string{"MY_SECRET1", "OTHER", "my_a", "MY_HIDDEN"}},
		{nil, []string{"*X"}, nil, []string{"A"}, []string{"AX", "X"}},
		{nil, nil, []string{"FOO", "B*"}, []string{"FOO1", "foo", "BA"}, []string{"FOO"}},
		{[]string{}, []string{}, []string{}, []string{"A"}, nil},
	} {
		e := NewEnvRules(c.allow, c.deny, c.names, secret)
		for _, name := range c.yes {
			if d := e.Permits(name); !d.OK() {
				t.Errorf("%+v: %s: %q", c, name, d.Code)
			}
		}
		for _, name := range c.no {
			if d := e.Permits(name); d.Code != EnvVarNotAllowed {
				t.Errorf("%+v: %s: %q", c, name, d.Code)
			}
		}
	}
	var zero EnvRules
	if d := zero.Permits("A"); !d.OK() {
		t.Errorf("no rules: %q", d.Code)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	e := NewEnvRules(nil, []string{"NO_*"}, nil, func(name string) bool { return name == "HOLDS_IT" })
	for _, name := range []string{"PATH", "HOME", "ABX_OTHER", "A", "COMPASS", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "AUTHOR", "AUTH_MODE"} {
		if !e.Shows(name, "v") {
			t.Errorf("%s is not shown", name)
		}
	}
	for _, name := range []string{
		"MY_TOKEN", "secretive", "Api_Key", "MONKEY", "PASSWORD", "aws_credentials",
		"ABX_SERVER_POLICY", "abx_server_x", "HOLDS_IT", "NO_A",
		"DB_PASS", "pass", "MYSQL_PASSWD", "GPG_PASSPHRASE", "SESSION_COOKIE", "COOKIE_JAR", "NPM_AUTH", "_auth",
	} {
		if e.Shows(name, "v") {
			t.Errorf("%s is shown", name)
		}
	}
	if NewEnvRules([]string{"*"}, nil, nil, nil).Shows("MY_TOKEN", "v") {
		t.Error("an allow list brings a secret back")
	}
}

func TestValuesWithAPasswordAreNotShown(t *testing.T) {
	var e EnvRules
	for _, value := range []string{
		"", "https://h/p", "https://user@h/p", "https://h:8080/@scope/pkg", "https://h:8080?a@b", "https://h/p:x@y",
		"a:b@c", "user:pw", "git@host:path", "https://u:@h", "https://h:80 mail@host",
	} {
		if !e.Shows("A", value) {
			t.Errorf("%q is not shown", value)
		}
	}
	for _, value := range []string{
		"postgres://u:p@h/db", "redis://:p@h", "-Dx=https://u:p@h", "a://b c://u:p@h", "http://a/,http://u:p@h", "mysql://u:p/w@h",
		"amqp://u:1@h", "https://u:p@ss@h", "https://u:12345@h/",
	} {
		if e.Shows("A", value) {
			t.Errorf("%q is shown", value)
		}
	}
	if !e.Shows("PWD", "/tmp/x://u:p@h") {
		t.Error("PWD is not shown")
	}
}
