package pty

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// What users of other servers saw, each as a trial of ours.

func TestCharacterCutByTheProgramArrivesWhole(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	v := view(t, dial(t, serve(t, m), s, ""))
	v.typed(`stty -echo; printf 'A\342\202'; sleep 0.4; printf '\254B\n'; printf '[\377\303\251\303]'; echo end` + "\n")
	v.expect("]end")
	text := v.text.String()
	if !strings.Contains(text, "A€B") {
		t.Errorf("the character is not whole: %q", text)
	}
	if !strings.Contains(text, "[\uFFFDé\uFFFD]end") {
		t.Errorf("an invalid byte is not one mark: %q", text)
	}
}

func TestEverybodySeesEverything(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	a, b := view(t, dial(t, srv, s, "")), view(t, dial(t, srv, s, ""))
	b.typed("echo both$((40+2))\n")
	a.expect("both42")
	b.expect("both42")
}

func TestSlowSubscriberDoesNotFreezeOrRobTheOthers(t *testing.T) {
	for _, how := range []string{"never reads", "goes away"} {
		t.Run(how, func(t *testing.T) {
			m := newManager(t, Options{})
			srv := serve(t, m)
			s := create(t, m, shell())
			frozen, b := dial(t, srv, s, ""), view(t, dial(t, srv, s, ""))
			b.typed("stty -echo\n")
			b.typed("seq 1 20000; echo FIN$((1+1))\n")
			if how == "goes away" {
				b.expect("\r\n5000\r\n")
				if err := frozen.CloseNow(); err != nil {
					t.Fatal(err)
				}
			}
			b.expect("FIN2")
			want := &strings.Builder{}
			for i := range 20000 {
				fmt.Fprintf(want, "%d\r\n", i+1)
			}
			if !strings.Contains(b.text.String(), want.String()) {
				t.Error("lines are missing")
			}
		})
	}
}

func TestProgramRunsOnWithNobodyAttached(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	done := filepath.Join(t.TempDir(), "done")
	v := view(t, dial(t, srv, s, ""))
	v.typed("stty -echo; yes xxxxxxxxxxxxxxxxxxxxxxxxx | head -c 3000000; echo; echo FIN$((1+1)); touch " + done + "\n")
	if err := v.ws.CloseNow(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program ends", func() bool { _, err := os.Stat(done); return err == nil })
	v = view(t, dial(t, srv, s, ""))
	v.expect("FIN2")
	if n := v.text.Len(); n < DefaultScrollback*9/10 || n > DefaultScrollback*5/4 { // some came after the attach
		t.Errorf("%d bytes were kept", n)
	}
	// What was delivered is not delivered again.
	v = view(t, dial(t, srv, s, ""))
	v.typed("echo last$((1+1))\n")
	v.expect("last2")
	if strings.Contains(v.text.String(), "FIN2") {
		t.Error("output came twice")
	}
}

func TestLastOutputComesBeforeTheExit(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	for range 3 {
		s := create(t, m, shell())
		v := view(t, dial(t, srv, s, ""))
		v.typed("stty -echo; seq 1 30000; exit 7\n")
		exited, code := v.untilExit()
		text := v.text.String()
		if !strings.HasSuffix(text, "\r\n29999\r\n30000\r\n") || !strings.Contains(text, "1\r\n2\r\n3\r\n") {
			t.Errorf("the output is cut: %.60q … %q", text, text[max(0, len(text)-60):])
		}
		if exited.ExitCode == nil || *exited.ExitCode != 7 || exited.Signal != nil || exited.SessionID != s.ID() || code != 1000 {
			t.Errorf("the end is %+v, closed with %d", exited, code)
		}
	}
}

func TestDeletedTerminalLeavesNothingBehind(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	for name, script := range map[string]string{
		"plain":           "",
		"background job":  "sleep 90 & echo $! >FILE\n",
		"deaf job":        "nohup sleep 90 >/dev/null 2>&1 & echo $! >FILE\n",
		"own group":       "set -m; sleep 90 | sleep 90 & echo $! >FILE\n",
		"stopped":         "sh -c 'echo $$ >FILE; kill -STOP $$; sleep 90'\n",
		"own session":     "setsid sh -c 'echo $$ >FILE; exec sleep 90' </dev/null >/dev/null 2>&1 &\n",
		"deaf foreground": "sh -c 'trap \"\" HUP TERM INT; echo $$ >FILE; while :; do sleep 1; done'\n",
		"fork storm":      "sh -c 'trap \"\" HUP; echo $$ >FILE; while :; do sleep 0.01 & done'\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := create(t, m, shell())
			v := view(t, dial(t, serve(t, m), s, ""))
			pids := []int{s.PID()}
			if script != "" {
				file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
				v.typed(strings.ReplaceAll(script, "FILE", file))
				pids = append(pids, pidFrom(t, file))
			}
			began := time.Now()
			if err := m.Delete(s.ID(), Viewer{All: true}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			for _, pid := range pids {
				if living(pid) {
					t.Errorf("process %d of %v lives", pid, pids)
				}
			}
			exited, code := v.untilExit()
			if exited.Event != "exited" || code != 1000 {
				t.Errorf("the viewer is told %+v and %d", exited, code)
			}
			if _, err := m.Get(s.ID(), Viewer{All: true}); err == nil {
				t.Error("it is still known")
			}
			if err := m.Delete(s.ID(), Viewer{All: true}); err == nil {
				t.Error("it can be deleted twice")
			}
		})
	}
}

func TestOddMessagesEndNothing(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	v := view(t, dial(t, serve(t, m), s, ""))
	for _, msg := range []string{
		"not json", "[]", "{}", "5", "null", `"x"`, `{"type":"input","data":5}`, `{"type":"signal","signal":"SIGNOPE"}`,
		`{"type":"resize","cols":-1,"rows":1e9}`, `{"type":"resize","cols":0,"rows":0}`, `{"type":"nope"}`, "",
	} {
		v.send(websocket.MessageText, msg)
	}
	v.send(websocket.MessageBinary, "\xff\xfe")
	v.send(websocket.MessageBinary, "\xff\xfe")
	v.send(websocket.MessageBinary, `{"type":"input","data":"echo still$((1+1))\n"}`)
	v.expect("still2")
	if r := s.Record(); r.Cols != 80 || r.Rows != 24 {
		t.Errorf("the size is %d × %d", r.Cols, r.Rows)
	}
}

func TestPingsAndResizesDuringAFlood(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	v := view(t, dial(t, serve(t, m), s, ""))
	v.typed("stty -echo; timeout 3 yes; echo FIN$((1+1))\n")
	v.expect("y\r\ny\r\n")
	slowest := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		defer func() { slowest <- worst }()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for i := range 200 {
			began := time.Now()
			if err := v.ws.Ping(ctx); err != nil {
				t.Errorf("ping %d: %v", i, err)
				return
			}
			worst = max(worst, time.Since(began))
			if i%4 == 0 {
				msg := fmt.Sprintf(`{"type":"resize","cols":%d,"rows":%d}`, 80+i, 24+i)
				if err := v.ws.Write(ctx, websocket.MessageText, []byte(msg)); err != nil {
					t.Errorf("resize: %v", err)
					return
				}
			}
		}
	}()
	v.expect("FIN2")
	go func() { // pongs are read with the messages
		for err := error(nil); err == nil; {
			_, err = v.next()
		}
	}()
	if worst := <-slowest; worst > 5*time.Second {
		t.Errorf("a pong took %v", worst)
	}
	eventually(t, "the last size holds", func() bool { r := s.Record(); return r.Cols == 276 && r.Rows == 220 })
}

// TestDeletedSessionCannotReachAnother: input on the socket of a deleted
// session reached the next one, which had got the same descriptor number.
func TestDeletedSessionCannotReachAnother(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	leak := filepath.Join(t.TempDir(), "leak")
	for range 4 {
		a := create(t, m, shell())
		v := view(t, dial(t, srv, a, ""))
		if err := m.Delete(a.ID(), Viewer{All: true}); err != nil {
			t.Fatal(err)
		}
		b := create(t, m, shell())
		data, err := json.Marshal("echo x >" + leak + "\n")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_ = v.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"input","data":`+string(data)+`}`)) // may be refused
		cancel()
		if n, err := a.Input(context.Background(), []byte("echo x >"+leak+"\n")); err == nil {
			t.Errorf("an ended session took %d bytes", n)
		}
		typeTo(t, b, "echo b$((1+1))\n")
		shown(t, b, "b2\r\n")
		if _, err := os.Stat(leak); err == nil {
			t.Fatal("it arrived")
		}
	}
}
