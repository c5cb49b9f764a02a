package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// tail is how much of each output an error shows.
const tail = 4096

// outcome is what a program that ended by itself amounts to.
func (p *program) outcome(st proc.Status, out *collector) ([]byte, error) {
	if p.result == "full" {
		return encodeJSON(struct {
			Stdout   string `json:"stdout"`
			Stderr   string `json:"stderr"`
			ExitCode int    `json:"exit_code"`
		}{string(out.out), string(out.err), st.Code})
	}
	if !slices.Contains(p.success, st.Code) {
		return nil, p.commandFailed(st, out)
	}
	switch p.result {
	case "none":
		return []byte("null"), nil
	case "lines":
		return encodeJSON(lines(out.out))
	case "json":
		text := bytes.TrimSpace(out.out)
		if !json.Valid(text) || !utf8.Valid(text) {
			return nil, failed(500, "ResultError", "result_not_json", "The output of command '%s' is not one JSON value", p.name)
		}
		return text, nil
	}
	return encodeJSON(string(bytes.TrimSuffix(out.out, []byte("\n"))))
}

func (p *program) commandFailed(st proc.Status, out *collector) error {
	f := failed(500, "CommandFailed", "command_failed", "exit status %d", st.Code)
	if st.Signal != 0 {
		f.Text = fmt.Sprintf("killed by signal %d (%s)", int(st.Signal), st.Signal)
	}
	for line := range strings.SplitSeq(string(lastBytes(out.err)), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			f.Text = strings.ToValidUTF8(line, "\uFFFD")
		}
	}
	if p.result == "json" {
		var said struct {
			Error *string `json:"error"`
			Type  *string `json:"type"`
		}
		if err := json.Unmarshal(out.out, &said); err == nil && said.Error != nil {
			f.Text = *said.Error
			if said.Type != nil && *said.Type != "" {
				f.Type = *said.Type
			}
		}
	}
	return f.with("exit_code", st.Code).with("stdout", string(lastBytes(out.out))).with("stderr", string(lastBytes(out.err)))
}

// lastBytes is the end of an output, from the beginning of a character.
func lastBytes(b []byte) []byte {
	if len(b) <= tail {
		return b
	}
	b = b[len(b)-tail:]
	for i := range min(len(b), utf8.UTFMax-1) {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

func lines(out []byte) []string {
	list := []string{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		list = append(list, string(bytes.TrimSuffix(line, []byte("\r"))))
		out = rest
	}
	return list
}

// encodeJSON writes v as JSON; bytes that are not UTF-8 become U+FFFD.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
