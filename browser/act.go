package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrKey says that there is no key of that name.
var ErrKey = errors.New("no such key")

// named are the keys that type nothing, with their Windows codes.
var named = map[string]int{
	"Backspace": 8, "Delete": 46, "Escape": 27, "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34, "Insert": 45,
	"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Shift": 16, "Control": 17, "Alt": 18, "Meta": 91,
	"F1": 112, "F2": 113, "F3": 114, "F4": 115, "F5": 116, "F6": 117, "F7": 118, "F8": 119, "F9": 120, "F10": 121, "F11": 122, "F12": 123,
}

// modifiers are the bits of the keys that change others.
var modifiers = map[string]int{"Alt": 1, "Control": 2, "Ctrl": 2, "Meta": 4, "Shift": shift}

// Keys is a key with those that are held meanwhile.
type Keys struct {
	key key
	// commands are what editors do for it; Chrome does by itself only what a
	// key types.
	commands []string
}

// ParseKeys reads a key such as "Enter", "a", "ArrowDown" or "Control+Shift+A".
func ParseKeys(text string) (Keys, error) {
	held := 0
	rest := text
	for {
		name, after, more := strings.Cut(rest, "+")
		if !more || after == "" {
			break
		}
		bit, ok := modifiers[name]
		if !ok {
			break
		}
		held, rest = held|bit, after
	}
	if held&^shift != 0 && held&shift == 0 && len(rest) == 1 {
		rest = strings.ToLower(rest) // Control+A is not Control+Shift+A
	}
	k, err := keyNamed(rest)
	if err != nil {
		return Keys{}, err
	}
	k.modifiers |= held
	out := Keys{key: k}
	if held&^shift != 0 {
		out.key.text = "" // with others than shift a key types nothing
		if held == modifiers["Control"] && strings.EqualFold(rest, "a") {
			out.commands = []string{"selectAll"}
		}
	}
	return out, nil
}

func keyNamed(name string) (key, error) {
	if n, ok := named[name]; ok {
		return key{name: name, code: name, number: n}, nil
	}
	switch name {
	case "Enter":
		return keyOf('\n'), nil
	case "Tab":
		return keyOf('\t'), nil
	case "Space":
		return keyOf(' '), nil
	}
	if c, size := utf8.DecodeRuneInString(name); size > 0 && size == len(name) && c != utf8.RuneError {
		return keyOf(c), nil
	}
	return key{}, fmt.Errorf("%w: %.40q", ErrKey, name)
}

// Press presses a key in the element that has the focus, or in the one named.
func (p *Page) Press(ctx context.Context, what Target, k Keys) error {
	if what != (Target{}) {
		if _, err := p.ready(ctx, what, need{Enabled: true, Keep: true}); err != nil {
			return err
		}
		if err := p.ask(ctx, "focus", nil, values(false)); err != nil {
			return err
		}
	}
	down := k.key.down()
	if len(k.commands) > 0 {
		down["commands"] = k.commands
	}
	for _, params := range []object{down, k.key.up()} {
		if err := p.call(ctx, "Input.dispatchKeyEvent", params, nil); err != nil && !moved(err) {
			return err
		}
	}
	return p.settle(ctx)
}

// Hover moves the pointer to the middle of an element.
func (p *Page) Hover(ctx context.Context, what Target) error {
	s, err := p.ready(ctx, what, need{Pointer: true})
	if err != nil {
		return err
	}
	return p.mouse(ctx, "mouseMoved", s, object{"button": "none"})
}

// Select chooses options of a select element by their values or labels, and
// returns the values of those that are then selected.
func (p *Page) Select(ctx context.Context, what Target, options []string) ([]string, error) {
	if _, err := p.ready(ctx, what, need{Enabled: true, Keep: true}); err != nil {
		return nil, err
	}
	var chosen []string
	return chosen, p.ask(ctx, "select", &chosen, values(options))
}

// Scroll scrolls the page by a distance in CSS pixels, or an element into view,
// and tells where the page is then.
func (p *Page) Scroll(ctx context.Context, what Target, x, y float64) (left, top float64, err error) {
	if what != (Target{}) {
		if _, err := p.ready(ctx, what, need{}); err != nil {
			return 0, 0, err
		}
	}
	var at struct{ X, Y float64 }
	err = p.ask(ctx, "scroll", &at, values(x, y))
	return at.X, at.Y, err
}

// Upload gives files to a file input. Chrome opens files by their names, so it
// gets copies in a folder of its own, which stay until it ends: the page may
// have handed the files to another, or to a worker, when it is closed.
func (p *Page) Upload(ctx context.Context, what Target, files []Upload) (err error) {
	dir, err := os.MkdirTemp(p.e.profile, uploadFolder+"*")
	if err != nil {
		return reason(err)
	}
	defer func() {
		if err != nil { // the page has not got them
			_ = os.RemoveAll(dir)
		}
	}()
	paths := make([]string, len(files))
	for i, f := range files {
		sub := filepath.Join(dir, fmt.Sprint(i)) // names may be equal
		if err := os.Mkdir(sub, 0o700); err != nil {
			return reason(err)
		}
		paths[i] = filepath.Join(sub, filepath.Base(f.Name))
		if err := copyTo(paths[i], f.Content); err != nil {
			return reason(err) // the name is the server's own
		}
	}
	var found evaluated
	world, err := p.library(ctx)
	if err != nil {
		return err
	}
	arg, err := p.argument(ctx, what, world)
	if err != nil {
		return err
	}
	err = p.call(ctx, "Runtime.callFunctionOn", object{
		"functionDeclaration": "(what) => abx.fileInput(what)", "executionContextId": world, "arguments": []object{arg},
	}, &found)
	switch {
	case err != nil:
		return err
	case found.Exception != nil:
		return failure("%s", found.Exception.message())
	case found.Result.ID == "":
		return ErrNoElement
	}
	return p.call(ctx, "DOM.setFileInputFiles", object{"files": paths, "objectId": found.Result.ID}, nil)
}

// uploadFolder is what the names of folders with copies begin with.
const uploadFolder = "upload-"

// removeUploads removes the copies that a Chrome was given which has ended.
func removeUploads(profile string) {
	files, _ := os.ReadDir(profile) // as far as it could be read
	for _, f := range files {
		if strings.HasPrefix(f.Name(), uploadFolder) {
			_ = os.RemoveAll(filepath.Join(profile, f.Name()))
		}
	}
}

// Upload is a file for a page.
type Upload struct {
	Name    string
	Content io.Reader
}

func copyTo(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// Travel goes back (-1) or forward (1) in the page's history, or loads the page
// anew (0), and waits as Navigate does. Where there is nowhere to go it stays.
func (p *Page) Travel(ctx context.Context, steps int, until Until) (Visit, error) {
	t := p.tab
	if err := again(ctx, func() error { return t.call(ctx, "Page.stopLoading", nil, nil) }); err != nil {
		return Visit{}, err
	}
	var history struct {
		Current int `json:"currentIndex"`
		Entries []struct {
			ID  int    `json:"id"`
			URL string `json:"url"`
		} `json:"entries"`
	}
	if err := t.call(ctx, "Page.getNavigationHistory", nil, &history); err != nil {
		return Visit{}, err
	}
	to := history.Current + steps
	if to < 0 || to >= len(history.Entries) {
		return Visit{URL: p.URL(), Title: t.title(ctx)}, nil
	}
	var loader, from string
	t.update(func() {
		loader, from = t.loader, t.url
		t.pending, t.download, t.doc = false, false, document{}
	})
	var err error
	if steps == 0 {
		err = t.call(ctx, "Page.reload", nil, nil)
	} else {
		err = t.call(ctx, "Page.navigateToHistoryEntry", object{"entryId": history.Entries[to].ID}, nil)
	}
	if err == nil {
		err = t.await(ctx, func() (bool, time.Time) {
			return t.crashed || t.loader != loader || t.download || steps != 0 && t.url != from && !t.pending, time.Time{}
		})
	}
	if err == nil {
		err = t.reached(ctx, until)
	}
	if err != nil {
		t.post("Page.stopLoading", nil)
		return Visit{}, err
	}
	return t.visited(ctx)
}
