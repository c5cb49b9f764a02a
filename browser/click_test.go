package browser

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestClicksEndWhateverTheyLeadTo clicks on what opens no page, or not here.
func TestClicksEndWhateverTheyLeadTo(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/next", `<title>next</title>`)
	r.serve("/", `<title>start</title>
		<a id=script href="javascript:void(0)">x</a> <a id=mail href="mailto:a@example.com">x</a> <a id=part href="#part">x</a>
		<a id=tab href="/next" target=_blank>x</a> <a id=frame href="/next" target=f>x</a> <iframe name=f></iframe>
		<a id=refused href="http://127.0.0.1:1/">x</a> <a id=nowhere href="http://nowhere.test/">x</a>
		<form action="/next" target=f><button id=form>x</button></form> <a id=state href="#" onclick="history.pushState(1, '', '/pushed'); return false">x</a>
		<a id=late href="#" onclick="setTimeout(() => location.href = '/next', 10); return false">x</a> <a id=page href="/next">x</a>`)
	for id, path := range map[string]string{
		"script": "/", "mail": "/", "part": "/", "tab": "/", "frame": "/", "form": "/", "state": "/pushed", "late": "/next", "page": "/next",
		"refused": "", "nowhere": "",
	} {
		r.mustOpen("http://page.test/")
		began := time.Now()
		err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: "#" + id}) })
		if err != nil {
			t.Errorf("%s: %v after %v", id, err, time.Since(began))
			continue
		}
		if got := r.js(`location.pathname`); path != "" && got != path {
			t.Errorf("%s: the page is %v", id, got)
		}
	}
}

func TestElementsAreWaitedForUntilTheyCanBeActedOn(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>x</title><style>@keyframes m { to { margin-left: 300px } } .moving { animation: m .4s linear forwards }</style>
		<button id=late hidden onclick="document.title += ' late'">x</button>
		<button id=off disabled onclick="document.title += ' off'">x</button>
		<div style="position:relative"><button id=under onclick="document.title += ' under'">x</button><div id=over style="position:absolute;inset:0;background:red"></div></div>
		<button id=moving class=moving onclick="document.title += ' moving'">x</button>
		<label><input type=checkbox id=box style="opacity:0">label</label>
		<div id=host></div><div style="height:3000px"></div><button id=far onclick="document.title += ' far'">x</button>
		<input id=ro readonly value=fixed>
		<script>
		setTimeout(() => { late.hidden = false; off.disabled = false; over.remove() }, 300);
		document.getElementById('host').attachShadow({mode: 'open'}).innerHTML = '<button id=inner onclick="document.title += \' inner\'">in the shadow</button>';
		</script>`)
	r.mustOpen("http://page.test/")
	for _, s := range []string{"#late", "#off", "#under", "#moving", "#far", "#inner", "text=in the shadow", "xpath=//button[@id='far']", "//button[@id='far']", "css=#far"} {
		if err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: s}) }); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if got := r.js(`document.title`); got != "x late off under moving far inner inner far far far" {
		t.Errorf("clicked: %v", got)
	}
	if err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: "#box"}) }); err != nil {
		t.Error(err)
	}
	if got := r.js(`box.checked`); got != true {
		t.Errorf("the box is %v", got)
	}
	limited := func(act func(context.Context, *Page) error) error {
		return r.b.Do(t.Context(), r.ask(""), 300*time.Millisecond, act)
	}
	for _, s := range []string{"#nope", "text=nope", "//nope"} {
		err := limited(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: s}) })
		if kindOf(err) != Timeout {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"][", "//[", "text=/(/"} {
		err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: s}) })
		if kindOf(err) != Failure {
			t.Errorf("%s: %v", s, err)
		}
	}
	// On a busy machine a short time is over before the element was even looked at.
	for limit := 300 * time.Millisecond; ; limit *= 3 {
		err := r.b.Do(t.Context(), r.ask(""), limit, func(ctx context.Context, p *Page) error {
			return p.Type(ctx, Target{Selector: "#ro"}, "x", 0, true)
		})
		if kindOf(err) == Timeout && strings.Contains(err.Error(), "editable") {
			break
		}
		if kindOf(err) != Timeout || limit > 20*time.Second {
			t.Fatalf("read-only: %v", err)
		}
	}
}

// TestTextsAreFoundInTheInnermostElement looks for them as people see them.
func TestTextsAreFoundInTheInnermostElement(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<body><div id=outer><p id=p>Some   <b id=b>bold</b> text</p></div><script>/* Some script */</script>
		<input id=send type=submit value="Send it"><span id=exact>Go</span><span id=longer>Go on</span></body>`)
	r.mustOpen("http://page.test/")
	for text, want := range map[string]string{
		"text=bold": "b", "text=some bold text": "p", "text=SEND": "send", `text="Go"`: "exact", "text=go on": "longer", `text=/^g.*n$/i`: "longer", "text=script": "",
	} {
		var got string
		err := r.do(func(ctx context.Context, p *Page) error {
			world, err := p.library(ctx)
			if err != nil {
				return err
			}
			var out evaluated
			err = p.call(ctx, "Runtime.callFunctionOn", object{
				"functionDeclaration": "(s) => (abx.find(s) || {id: ''}).id", "executionContextId": world, "arguments": []object{{"value": text}}, "returnByValue": true,
			}, &out)
			got = strings.Trim(string(out.Result.Value), `"`)
			return err
		})
		if err != nil || got != want {
			t.Errorf("%s: #%s, %v; want #%s", text, got, err, want)
		}
	}
}
