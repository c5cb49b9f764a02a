package registry

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func makeFIFO(name string) error { return unix.Mkfifo(name, 0o600) }

// alive tells whether a process runs; one that only waits to be reaped does not.
func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
