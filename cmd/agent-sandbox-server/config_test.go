package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func readConfig(t *testing.T, env []string, args ...string) (c *config, status int, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	p := &program{env: env, stdout: &out, stderr: &err, ambient: "/nonexistent"}
	c, status, _ = p.serveConfig(args)
	if out.Len() > 0 {
		t.Errorf("stdout %q", &out)
	}
	return c, status, err.String()
}

func TestDefaults(t *testing.T) {
	for _, env := range [][]string{nil, {
		"ABX_PTY_PORT=", "ABX_SERVER_BASE_DIR=", "ABX_MAX_UPLOAD_SIZE=", "ABX_SHUTDOWN_TIMEOUT=", "ABX_LOG_FORMAT=",
		"ABX_HTTP_HEADER_TIMEOUT=", "ABX_HTTP_MAX_CONNECTIONS=", "ABX_SERVER_ALLOWED_ORIGINS=", "ABX_ENVD_PORT=",
	}} {
		c, _, stderr := readConfig(t, env)
		if c == nil {
			t.Fatal(stderr)
		}
		if c.host != "0.0.0.0" || c.port != 9000 || c.ptyPort != 9001 || c.ptyNamed || c.baseDir != "/home/user" ||
			c.maxUpload != 104857600 || c.shutdown != 5*time.Second || c.logFormat != "text" ||
			c.headerTimeout != 10*time.Second || c.bodyTimeout != time.Minute || c.idleTimeout != 75*time.Second ||
			c.maxConnections != 1024 || c.ptyIdle != 0 || len(c.origins)+len(c.hosts) != 0 {
			t.Errorf("%v: %+v", env, *c)
		}
	}
}

func TestOptionsBeatTheEnvironment(t *testing.T) {
	env := []string{"ABX_PTY_PORT=7001", "ABX_SERVER_BASE_DIR=/env", "ABX_SHUTDOWN_TIMEOUT=9", "ABX_LOG_FORMAT=json"}
	c, _, stderr := readConfig(t, env)
	if c == nil {
		t.Fatal(stderr)
	}
	if c.ptyPort != 7001 || !c.ptyNamed || c.baseDir != "/env" || c.shutdown != 9*time.Second || c.logFormat != "json" {
		t.Errorf("environment: %+v", *c)
	}
	c, _, stderr = readConfig(t, env, "--pty-port", "7002", "--base-dir=/opt/x/../y", "--shutdown-timeout=0.5", "--log-format", "text")
	if c == nil {
		t.Fatal(stderr)
	}
	if c.ptyPort != 7002 || !c.ptyNamed || c.baseDir != "/opt/y" || c.shutdown != time.Second/2 || c.logFormat != "text" {
		t.Errorf("options: %+v", *c)
	}
}

// The variables of the published server are lenient where it was.
func TestLenientVariables(t *testing.T) {
	for _, bad := range []string{"x", "-1", "70000", "1.5", "9e3"} {
		c, _, stderr := readConfig(t, []string{"ABX_PTY_PORT=" + bad, "ABX_MAX_UPLOAD_SIZE=" + strings.TrimSuffix(bad, "000")})
		if c == nil {
			t.Fatal(stderr)
		}
		if c.ptyPort != defaultPTYPort || c.ptyNamed {
			t.Errorf("ABX_PTY_PORT=%s: %d, named %v", bad, c.ptyPort, c.ptyNamed)
		}
		if bad != "70000" && c.maxUpload != 100<<20 {
			t.Errorf("ABX_MAX_UPLOAD_SIZE=%s: %d", bad, c.maxUpload)
		}
	}
	c, _, _ := readConfig(t, []string{"ABX_MAX_UPLOAD_SIZE=4"})
	if c.maxUpload != 4 {
		t.Errorf("%d", c.maxUpload)
	}
}

func TestBadVariableStopsTheStart(t *testing.T) {
	bad := map[string][]string{
		"ABX_HTTP_HEADER_TIMEOUT": {"x", "0", "-1", "NaN", "Inf", "1e99", "1e-30"},
		"ABX_HTTP_BODY_TIMEOUT":   {"x", "0"}, "ABX_HTTP_IDLE_TIMEOUT": {"75s", "0"},
		"ABX_HTTP_MAX_CONNECTIONS": {"x", "0", "1.5", "99999999999"},
		"ABX_SHUTDOWN_TIMEOUT":     {"x", "-1"}, "ABX_PTY_IDLE_TIMEOUT": {"x", "-1"},
		"ABX_LOG_FORMAT": {"xml", "JSON"},
		"ABX_ENVD_PORT":  {"x", "70000", "-1"}, "ABX_ENVD_MAX_MESSAGE_BYTES": {"0", "64MB"},
		"ABX_ENVD_REPLAY_BYTES": {"-1"}, "ABX_ENVD_DRAIN_MS": {"x"},
		"ABX_COMMANDS_TIMEOUT": {"0", "x"}, "ABX_COMMANDS_MAX_CONCURRENCY": {"0"},
		"ABX_SERVER_ALLOWED_ORIGINS": {"example.org", "http://a.example/path", "http://u:p@a.example"},
		"ABX_SERVER_ALLOWED_HOSTS":   {"a b", "http://a.example", "a.example:80", "*.", "a.*"},
	}
	for name, values := range bad {
		for _, v := range values {
			_, status, stderr := readConfig(t, []string{name + "=" + v})
			if status != exitFailed || !strings.HasPrefix(stderr, "configuration error: "+name+": ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s=%s: status %d, %q", name, v, status, stderr)
			}
		}
	}
	// A bad one counts even where an option says the same thing.
	if _, status, _ := readConfig(t, []string{"ABX_SHUTDOWN_TIMEOUT=x"}, "--shutdown-timeout", "1"); status != exitFailed {
		t.Errorf("status %d", status)
	}
}

func TestAllowLists(t *testing.T) {
	c, _, stderr := readConfig(t, []string{
		"ABX_SERVER_ALLOWED_ORIGINS= https://a.example , ,null,http://localhost:3000",
		"ABX_SERVER_ALLOWED_HOSTS=*.example.org,*",
	})
	if c == nil {
		t.Fatal(stderr)
	}
	if !slices.Equal(c.origins, []string{"https://a.example", "null", "http://localhost:3000"}) ||
		!slices.Equal(c.hosts, []string{"*.example.org", "*"}) {
		t.Errorf("%q %q", c.origins, c.hosts)
	}
}

func TestVariableErrorIsShort(t *testing.T) {
	_, _, stderr := readConfig(t, []string{"ABX_LOG_FORMAT=" + strings.Repeat("x", 10000) + "\nsecond line"})
	if len(stderr) > 300 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%d bytes: %q", len(stderr), stderr)
	}
}

// FuzzConfig holds that no environment makes reading it panic, and that what
// is accepted is within bounds.
func FuzzConfig(f *testing.F) {
	f.Add("10", "1024", "https://a.example", "9001")
	f.Add("1e400", "-0", "*,", "0x1")
	f.Add("NaN", "９", "http://[::1", "+1")
	f.Fuzz(func(t *testing.T, seconds, count, names, port string) {
		env := []string{
			"ABX_HTTP_BODY_TIMEOUT=" + seconds, "ABX_SHUTDOWN_TIMEOUT=" + seconds, "ABX_HTTP_MAX_CONNECTIONS=" + count,
			"ABX_SERVER_ALLOWED_ORIGINS=" + names, "ABX_SERVER_ALLOWED_HOSTS=" + names, "ABX_PTY_PORT=" + port, "ABX_MAX_UPLOAD_SIZE=" + count,
		}
		c, status, stderr := readConfig(t, env)
		if c == nil {
			if status != exitFailed || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "configuration error: ABX_") {
				t.Fatalf("status %d, %q", status, stderr)
			}
			return
		}
		if c.bodyTimeout <= 0 || c.shutdown < 0 || c.maxConnections < 1 || c.maxConnections > math.MaxInt32 ||
			c.ptyPort < 0 || c.ptyPort > maxPort || c.maxUpload < 1 {
			t.Fatalf("%+v", *c)
		}
	})
}
