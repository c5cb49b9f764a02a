package api

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestBrokenChunksAreTheCallersMistake: what is no chunked coding was a 500
// with an entry in the error log.
func TestBrokenChunksAreTheCallersMistake(t *testing.T) {
	d := openDoor(t, doorOptions{})
	for _, chunks := range []string{"zz\r\n{}\r\n0\r\n\r\n", "-2\r\n{}\r\n0\r\n\r\n", "ffffffffffffffffff\r\n{}", "2\r\n{}zz0\r\n\r\n", "2\r\n{}\r\nzz\r\n"} {
		for _, path := range []string{"POST /echo", "PUT /raw", "PUT /members"} {
			got := d.ask(path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"type":"ValueError"`) {
				t.Errorf("%s with %q: %d %s", path, chunks, got.status, got.body)
			}
		}
	}
}

// TestChunksOfAnOldClientAreNoSecondRequest: HTTP/1.0 has no chunked coding, so
// the library passes over the header; a proxy in front of us that heeds it sees
// one request where we saw two.
func TestChunksOfAnOldClientAreNoSecondRequest(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	head := "POST /echo HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err := io.WriteString(c, head+get("/health")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	readReply(t, r, "POST")
	if rest, err := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("a second answer: %.60q (%v)", rest, err)
	}
}

func TestASecondContentEncodingIsNotPassedOver(t *testing.T) {
	d := openDoor(t, doorOptions{})
	for _, header := range [][]string{
		{"Content-Encoding: gzip", "Content-Encoding: br"}, {"Content-Encoding:", "Content-Encoding: gzip"}, {"Content-Encoding: gzip, br"},
	} {
		in := strings.Replace(post("/raw", "{}", header...), "POST", "PUT", 1)
		if got := d.ask(in); got.status != http.StatusUnsupportedMediaType {
			t.Errorf("%q: %d %s", header, got.status, got.body)
		}
	}
}

// TestManySmallValuesAreNotHeld: six bodies of ten megabytes full of "{}" took
// 1.6 GB.
func TestManySmallValuesAreNotHeld(t *testing.T) {
	d := openDoor(t, doorOptions{})
	for _, tt := range []struct {
		name, body string
		status     int
	}{
		{"in a field that is read", `{"text":[` + strings.Repeat("{},", maxValues) + `1]}`, 400},
		{"one field again and again", `{` + strings.Repeat(`"text":"",`, maxValues) + `"text":""}`, 400},
		{"where nobody looks", `{"other":[` + strings.Repeat("{},", maxValues) + `1],"text":"good"}`, 200},
		{"as many as may be", `{"text":[` + strings.Repeat("1,", maxValues-3) + `1]}`, 400},
	} {
		got := d.ask(post("/echo", tt.body))
		tooMany := strings.Contains(got.body, "too_many_values")
		if got.status != tt.status || tooMany != strings.Contains("in a field that is read, one field again and again", tt.name) {
			t.Errorf("%s: %d %.200s", tt.name, got.status, got.body)
		}
	}
}
