package browser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestACrashedTabIsReplacedAmongAsManyAsThereMayBe opens all that may be.
func TestACrashedTabIsReplacedAmongAsManyAsThereMayBe(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>here</title>`)
	r.mustOpen("http://page.test/")
	for range maxTabs - 1 {
		if _, err := r.b.OpenTab(t.Context(), r.ask(""), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.b.OpenTab(t.Context(), r.ask(""), ""); !errors.Is(err, ErrTabs) {
		t.Fatalf("one more: %v", err)
	}
	r.mustOpen("http://page.test/")
	err := r.do(func(ctx context.Context, p *Page) error {
		p.post("Page.crash", nil)
		_, err := p.Evaluate(ctx, `new Promise(() => 0)`)
		return err
	})
	if kindOf(err) != Closed {
		t.Fatalf("a crash: %v", err)
	}
	if v, err := r.open("http://page.test/", Load); err != nil || v.Title != "here" {
		t.Errorf("after it: %+v, %v", v, err)
	}
	eventually(t, "there are as many as before", func() bool {
		tabs, err := r.b.Tabs(t.Context())
		return err == nil && len(tabs) == maxTabs
	})
	if _, err := r.b.OpenTab(t.Context(), r.ask(""), ""); !errors.Is(err, ErrTabs) {
		t.Errorf("one more: %v", err)
	}
}

// TestFilesThatNoPageGotAreRemoved uploads to what is not there.
func TestFilesThatNoPageGotAreRemoved(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<p id=p>no input</p>`)
	r.mustOpen("http://page.test/")
	for _, selector := range []string{"#nope", "#p", "[["} {
		err := r.do(func(ctx context.Context, p *Page) error {
			return p.Upload(ctx, Target{Selector: selector}, []Upload{{Name: "f", Content: strings.NewReader("content")}})
		})
		if err == nil {
			t.Errorf("%s took it", selector)
		}
	}
	left, err := filepath.Glob(filepath.Join(r.b.profile, "upload-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestCopiesOfUploadedFilesGoWithTheirBrowser stops it for want of use, and then
// has it die.
func TestCopiesOfUploadedFilesGoWithTheirBrowser(t *testing.T) {
	r := newRig(t, `{}`, Options{Idle: 20 * time.Millisecond})
	r.serve("/", `<input type=file id=f>`)
	copies := func() []string {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		left, _ := filepath.Glob(filepath.Join(r.b.profile, "upload-*"))
		return left
	}
	upload := func() *engine {
		t.Helper()
		var e *engine
		if err := r.do(func(ctx context.Context, p *Page) error {
			e = p.e
			if _, err := p.Navigate(ctx, "http://page.test/", Load); err != nil {
				return err
			}
			if err := p.Upload(ctx, Target{Selector: "#f"}, []Upload{{Name: "f", Content: strings.NewReader("content")}}); err != nil {
				return err
			}
			text, err := p.Evaluate(ctx, `f.files[0].text()`) // the page can read it as long as it is there
			if err == nil && (string(text) != `"content"` || len(copies()) != 1) {
				t.Errorf("the page read %s, of %v", text, copies())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	upload()
	eventually(t, "the copy is gone with the browser that was stopped", func() bool { return len(copies()) == 0 })
	r.b.mu.Lock()
	r.b.idle = time.Hour
	r.b.mu.Unlock()
	e := upload()
	e.proc.End("")
	<-e.conn.lost
	r.mustOpen("http://page.test/")
	if left := copies(); len(left) > 0 {
		t.Errorf("after its death: %v", left)
	}
}

// TestAPageWhoseProcessHangsIsReplaced stops all processes of pages.
func TestAPageWhoseProcessHangsIsReplaced(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>here</title>`)
	r.mustOpen("http://page.test/")
	stopped := 0
	for _, pid := range using(r.b.profile) {
		text, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil || !strings.Contains(string(text), "--type=renderer") {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, syscall.SIGSTOP) == nil {
			stopped++
		}
	}
	if stopped == 0 {
		t.Skip("the processes of pages do not say what they are for")
	}
	err := r.b.Do(t.Context(), r.ask(""), time.Second, func(ctx context.Context, p *Page) error {
		_, err := p.Evaluate(ctx, `1`)
		return err
	})
	if kindOf(err) != Timeout {
		t.Fatalf("%v", err)
	}
	if v, err := r.open("http://page.test/", Load); err != nil || v.Title != "here" {
		t.Errorf("after it: %+v, %v", v, err)
	}
}

// TestScriptsRunInPagesWithASetOfTheirOwn has pages whose scripts are older than
// what browsers have under the same names.
func TestScriptsRunInPagesWithASetOfTheirOwn(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<script>var Set = function () { return 5 }, Map = 1, URL = "here"</script>`)
	r.mustOpen("http://page.test/")
	if got := r.js(`(() => { const a = {n: [1, {}]}; a.self = a; return a })()`); fmt.Sprint(got) != "map[n:[1 map[]] self:[Circular]]" {
		t.Errorf("%v", got)
	}
}

// TestAFullDiskNamesNoFileOfTheServers stands for one: there is no place for the
// copy of what is uploaded.
func TestAFullDiskNamesNoFileOfTheServers(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<input id=f type=file>`)
	r.mustOpen("http://page.test/")
	err := r.do(func(ctx context.Context, p *Page) error {
		return p.Upload(ctx, Target{Selector: "#f"}, []Upload{{Name: "f", Content: fullDisk{}}})
	})
	if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "abx-browser-") {
		t.Errorf("%v", err)
	}
}

type fullDisk struct{}

func (fullDisk) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/the/profile/of/abx-browser-1", Err: syscall.ENOSPC}
}
