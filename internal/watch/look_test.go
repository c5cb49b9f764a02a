package watch

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenBelowRefusesLinks(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/a/b/c", 0o755), os.Symlink("a", d+"/l"), os.Symlink("/", d+"/a/out"))
	write(t, d+"/a/f", "")
	root, err := openRoot(d)
	must(t, err)
	defer unix.Close(root)
	for name, open := range map[string]func(int, string, int) (int, error){"openat2": openBelow, "steps": stepBelow} {
		for _, c := range []struct {
			rel string
			ok  bool
		}{{"a", true}, {"a/b/c", true}, {"l", false}, {"l/b", false}, {"a/out", false}, {"a/out/tmp", false}, {"a/f", false}, {"none", false}} {
			fd, err := open(root, c.rel, unix.O_RDONLY|dirFlags)
			if err == nil {
				must(t, unix.Close(fd))
			}
			if (err == nil) != c.ok || err != nil && !absent(err) {
				t.Errorf("%s %s: %v", name, c.rel, err)
			}
		}
	}
}

func TestCutPath(t *testing.T) {
	long := strings.Repeat("/"+strings.Repeat("n", 100), 100)
	head, rest := cutPath(long)
	if len(head) >= unix.PathMax || head+"/"+rest != long {
		t.Errorf("%d + %d", len(head), len(rest))
	}
	if head, rest := cutPath("/a"); head != "/a" || rest != "" {
		t.Errorf("%q %q", head, rest)
	}
	noSlash := strings.Repeat("n", 5000)
	if _, err := openRoot("/" + noSlash); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Error(err)
	}
}
