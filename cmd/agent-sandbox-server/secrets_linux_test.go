package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestHoldsSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"ABX_SERVER_TOKEN": true, "abx_server_token": true, "ABX_SERVER_POLICY": true, "ABX_SERVER_POLICY_FILE": true,
		"MINE": true, "mine": false, "ABX_SERVER_BASE_DIR": false, "PATH": false, "": false,
	} {
		if got := holdsSecret(name, []string{"MINE"}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// readOf reads a file of another process under /proc. Who may not read it at
// all sees no secret either.
func readOf(t *testing.T, pid int, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	return text
}

func TestNobodyReadsTheTokenFromTheServersEnvironment(t *testing.T) {
	secrets := map[string]string{
		"ABX_SERVER_TOKEN":       "canary-token",
		"ABX_SERVER_POLICY":      `{"description":"canary-policy","auth":{"tokens":[{"id":"a","scopes":["*"],"token_env":"MINE"}]}}`,
		"ABX_SERVER_POLICY_FILE": "/canary-file",
		"MINE":                   "canary-mine",
	}
	env := []string{"FIRST=kept-first"}
	for name, value := range secrets {
		env = append(env, name+"="+value)
	}
	r := serveProcess(t, append(env, "LAST=kept-last"))
	check := func(when string) {
		t.Helper()
		text := readOf(t, r.cmd.Process.Pid, "environ")
		if bytes.Contains(text, []byte("canary")) {
			t.Errorf("%s: /proc/<pid>/environ shows a secret", when)
		}
		if os.Getuid() == 0 && (!bytes.Contains(text, []byte("kept-first")) || !bytes.Contains(text, []byte("kept-last"))) {
			t.Errorf("%s: more than the secrets is gone", when)
		}
		if text := readOf(t, r.cmd.Process.Pid, "cmdline"); bytes.Contains(text, []byte("canary")) {
			t.Errorf("%s: cmdline %q", when, text)
		}
	}
	check("started")
	if status, _ := r.get("/capabilities", "Authorization", "Bearer canary-mine"); status != 200 {
		t.Errorf("the token itself: %d", status)
	}
	r.signal(syscall.SIGHUP) // the policy is in memory alone now
	r.log.await(t, "policy read again")
	check("reloaded")
	if status, _ := r.get("/capabilities", "Authorization", "Bearer canary-mine"); status != 200 {
		t.Errorf("the token after a reload: %d", status)
	}
	if strings.Contains(r.log.String(), "canary") {
		t.Errorf("the log shows a secret:\n%s", r.log)
	}
	if strings.Contains(r.log.String(), notConcealed) {
		t.Errorf("%s", r.log)
	}
}

// TestUnprivilegedServerHidesItsMemory runs the server as a user without
// rights, and a program of the same user beside it.
func TestUnprivilegedServerHidesItsMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	// Others may not look where tests and their files lie.
	bin, err := os.MkdirTemp("/tmp", "asbx-secrets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	dir := filepath.Join(bin, "base")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/f", "found\n")
	if err := errors.Join(os.Chmod(dir+"/f", 0o644), os.Chmod(bin, 0o755), os.Chmod(dir, 0o755), os.WriteFile(bin+"/"+program0, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	port := freePort(t)
	server := exec.Command(bin+"/"+program0, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--base-dir", dir)
	server.SysProcAttr, server.Dir = nobody, "/"
	server.Env = []string{"PATH=" + os.Getenv("PATH"), "ABX_SERVER_TOKEN=canary-token"}
	log := &lockedBuffer{}
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Signal(syscall.SIGTERM); _ = server.Wait() }()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := waitHealthy(url); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	log.await(t, "listening")
	if strings.Contains(log.String(), notConcealed) {
		t.Errorf("%s", log)
	}
	// Starting in a directory that is held open goes through /proc/self/fd of
	// the child, which must still be let in.
	r := &running{t: t, url: url}
	out := r.post("/shell", `{"command":"cat f","cwd":"`+dir+`"}`, "Authorization", "Bearer canary-token")
	if out["stdout"] != "found\n" {
		t.Errorf("%v", out)
	}
	for _, name := range []string{"environ", "mem", "fd"} {
		thief := exec.Command("head", "-c", "1", fmt.Sprintf("/proc/%d/%s", server.Process.Pid, name))
		if name == "fd" {
			thief = exec.Command("ls", fmt.Sprintf("/proc/%d/%s", server.Process.Pid, name))
		}
		thief.SysProcAttr, thief.Dir = nobody, "/"
		if out, err := thief.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
}

func TestParseEnvBlock(t *testing.T) {
	tail := strings.Repeat(" 1", 47) + " 4096 8192 0\n" // fields 3 to 52
	start, end, err := parseEnvBlock([]byte("12 (a) b) ) S" + tail[2:]))
	if err != nil || start != 4096 || end != 8192 {
		t.Errorf("%d %d %v", start, end, err)
	}
	for _, bad := range []string{"", "1 (x) S", "1 (x)" + strings.Repeat(" 0", 60), "1 (x)" + strings.Repeat(" -1", 60)} {
		if _, _, err := parseEnvBlock([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseEnvBlock(f *testing.F) {
	if text, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(text)
	}
	f.Add([]byte("1 (x) " + strings.Repeat("7 ", 60)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if start, end, err := parseEnvBlock(text); err == nil && (start == 0 || end < start || end-start > 64<<20) {
			t.Fatalf("%d-%d", start, end)
		}
	})
}
