package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holdsSecret tells whether a variable is one that no other process may read
// from ours: the token, the policy, and what tokens are read from.
func holdsSecret(name string, tokenEnv []string) bool {
	upper := strings.ToUpper(name)
	return upper == "ABX_SERVER_TOKEN" || strings.HasPrefix(upper, "ABX_SERVER_POLICY") || slices.Contains(tokenEnv, name)
}

// concealEnv takes the secret variables out of this process's environment. The
// kernel shows the block a program was started with as /proc/<pid>/environ to
// every process of the same user, so their bytes are overwritten there. It
// works for PID 1 too, which cannot run itself again.
func concealEnv(secret func(name string) bool) error {
	for _, item := range os.Environ() {
		if name, _, _ := strings.Cut(item, "="); secret(name) {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	start, end, err := envBlock()
	if err != nil || start == end {
		return err
	}
	block := make([]byte, end-start)
	if err := readSelf(start, block); err != nil {
		return err
	}
	at := start
	for item := range bytes.SplitAfterSeq(block, []byte{0}) {
		name, _, _ := bytes.Cut(item, []byte{'='})
		if secret(string(name)) {
			clear(item)
			if err := writeSelf(at, item); err != nil {
				return err
			}
		}
		at += uintptr(len(item))
	}
	return nil
}

// undump keeps processes of the same user from opening our memory and our
// descriptors through /proc, or attaching a debugger: what the environment no
// longer shows is still in memory, and descriptors lead round the policy. It
// costs core dumps. Root with CAP_SYS_PTRACE is not kept out.
func undump() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// envBlock is where the environment lies in our memory.
func envBlock() (start, end uintptr, err error) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseEnvBlock(text)
}

// parseEnvBlock reads fields 50 and 51 of a /proc/<pid>/stat.
func parseEnvBlock(text []byte) (start, end uintptr, err error) {
	const afterName, startField, endField = 3, 50, 51
	// The name in parentheses may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= endField-afterName {
		return 0, 0, fmt.Errorf("/proc/self/stat has %d fields after the name", len(fields))
	}
	a, err := strconv.ParseUint(fields[startField-afterName], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.ParseUint(fields[endField-afterName], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	const most = 64 << 20 // the kernel allows a quarter of the stack limit
	if a == 0 || b < a || b-a > most {
		return 0, 0, fmt.Errorf("the environment block %#x-%#x makes no sense", a, b)
	}
	return uintptr(a), uintptr(b), nil
}

// readSelf and writeSelf reach our own memory through the kernel, which
// answers a bad address with an error instead of a crash. The calls may be
// forbidden where the file is not, and the other way round.
func readSelf(at uintptr, p []byte) error {
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	remote := []unix.RemoteIovec{{Base: at, Len: len(p)}}
	if n, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0); err == nil && n == len(p) {
		return nil
	}
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(p, int64(at))
	return err
}

func writeSelf(at uintptr, p []byte) error {
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	remote := []unix.RemoteIovec{{Base: at, Len: len(p)}}
	if n, err := unix.ProcessVMWritev(os.Getpid(), local, remote, 0); err == nil && n == len(p) {
		return nil
	}
	f, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(p, int64(at))
	return err
}
