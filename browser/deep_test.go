package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestADeeplyNestedPageHasAnOutline nests elements deeper than people do, as
// programs that make pages may.
func TestADeeplyNestedPageHasAnOutline(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	for depth, role := range map[int]string{250: "", 400: "group"} {
		r.serve(fmt.Sprintf("/%d", depth), fmt.Sprintf(`<body><script>
			let at = document.body;
			for (let i = 0; i < %d; i++) {
				const el = document.createElement("div");
				if (%q) el.setAttribute("role", %[2]q), el.setAttribute("aria-label", "level " + i);
				at = at.appendChild(el);
			}
			at.innerHTML = "<a href=/x>deep link</a>";
			document.body.append("the end");
		</script>`, depth, role))
		r.mustOpen(fmt.Sprintf("http://page.test/%d", depth))
		for _, interactive := range []bool{false, true} {
			var got Snapshot
			if err := r.do(func(ctx context.Context, p *Page) (err error) {
				got, err = p.Snapshot(ctx, interactive)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if got.Cut || !strings.Contains(got.Snapshot, `- link "deep link" [ref=`) {
				t.Errorf("%d deep, interactive %v, truncated %v: %.300s", depth, interactive, got.Cut, got.Snapshot)
			}
			if !interactive && !strings.Contains(got.Snapshot, "\n- text: the end") {
				t.Errorf("%d deep: what comes after is not there: %.300s", depth, got.Snapshot)
			}
		}
	}
}

// nested is a tree as Chrome tells it: as deep as it has elements.
func nested(n int, role string) []*axNode {
	nodes := make([]*axNode, n)
	for i := range nodes {
		nodes[i] = &axNode{ID: fmt.Sprint(i), Parent: fmt.Sprint(i - 1), Children: []string{fmt.Sprint(i + 1)}, Role: &axValue{role}, Name: &axValue{"x"}, Node: i + 1}
	}
	return append(nodes, &axNode{ID: fmt.Sprint(n), Parent: fmt.Sprint(n - 1), Role: &axValue{"StaticText"}, Name: &axValue{"the bottom"}})
}

// TestAnOutlineOfAnyDepthIsTold outlines trees that are nothing but deep.
func TestAnOutlineOfAnyDepthIsTold(t *testing.T) {
	for _, role := range []string{"group", "generic"} {
		begun := time.Now()
		o := outlined(nested(100_000, role), refs{}, false)
		text := o.text.String()
		if role == "generic" && text != "- text: the bottom\n" {
			t.Errorf("silent elements: %.100q", text)
		}
		if role == "group" && (o.refs < 5000 || len(text) > maxOutline+maxRead) {
			t.Errorf("%d refs, %d bytes", o.refs, len(text))
		}
		if time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %v", role, time.Since(begun))
		}
	}
	// A thousand levels lose nothing, and their text is found below the last.
	text := outlined(nested(1000, "group"), refs{}, false).text.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1001 || strings.TrimSpace(lines[1000]) != "- text: the bottom" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	// Chrome's word for it is not trusted: elements that are inside themselves.
	a, b := &axNode{ID: "a", Parent: "b", Children: []string{"b", "b"}}, &axNode{ID: "b", Parent: "a", Children: []string{"a"}}
	if got := outlined([]*axNode{a, b}, refs{}, false).text.String(); got != "" {
		t.Errorf("%q", got)
	}
}
