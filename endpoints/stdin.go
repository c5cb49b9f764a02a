package endpoints

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// inputIn is the whole standard input of a command.
type inputIn struct {
	Stdin       api.Field[string] `json:"stdin" doc:"Standard input, as text; empty by default."`
	StdinBase64 api.Field[string] `json:"stdin_base64" doc:"Standard input, as bytes; wins over stdin."`
}

// input is nil when the command gets an empty input.
func (in *inputIn) input() (*proc.Input, error) {
	data, err := textOrBytes("stdin", in.Stdin, in.StdinBase64)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return proc.InputBytes(data), nil
}

// textOrBytes reads a content that is given as text or, which wins, in base64.
func textOrBytes(name string, text, encoded api.Field[string]) ([]byte, error) {
	if !encoded.Set() {
		s, err := text.Optional(name, "")
		return []byte(s), err
	}
	// The decoder skips line breaks, which are no base64.
	data, err := base64.StdEncoding.Strict().DecodeString(encoded.V)
	if err != nil || encoded.State != api.Good || strings.ContainsAny(encoded.V, "\r\n") {
		return nil, api.Invalidf("'%s_base64' is not valid base64", name)
	}
	return data, nil
}

type stdinIn struct {
	PID        string            `path:"pid"`
	Data       api.Field[string] `json:"data" doc:"Text to write."`
	DataBase64 api.Field[string] `json:"data_base64" doc:"Bytes to write; wins over data."`
	EOF        api.Field[any]    `json:"eof" doc:"Close the input behind the data."`
}

type stdinOut struct {
	PID     int  `json:"pid"`
	Written int  `json:"written"`
	Closed  bool `json:"closed"`
}

func (s *Server) writeStdin(ctx context.Context, c *api.Call, in stdinIn) (stdinOut, error) {
	e, err := s.find(c, in.PID)
	if err != nil {
		return stdinOut{}, err
	}
	input := e.Process.Input()
	if input == nil {
		return stdinOut{}, conflict("", "The process was started without 'stdin'")
	}
	if !input.Open() {
		return stdinOut{}, inputError(proc.ErrInputClosed, 0)
	}
	data, err := textOrBytes("data", in.Data, in.DataBase64)
	if err != nil {
		return stdinOut{}, err
	}
	eof, err := flag(in.EOF, "eof")
	if err != nil {
		return stdinOut{}, err
	}
	if len(data) == 0 && !eof {
		return stdinOut{}, api.Invalidf("Missing 'data', 'data_base64' or 'eof'")
	}
	ctx, cancel := until(ctx, c.Stopping())
	defer cancel()
	n, err := input.Write(ctx, data, eof)
	if err != nil {
		return stdinOut{}, inputError(err, n)
	}
	return stdinOut{e.Process.PID(), n, eof}, nil
}

// inputError is the answer to a write that was not, or only partly, taken.
func inputError(err error, written int) error {
	switch {
	case errors.Is(err, proc.ErrEnded):
		return conflict("process_exited", "The process has ended").With("written", written)
	case errors.Is(err, proc.ErrInputClosed):
		return conflict("stdin_closed", "The input of the process is closed").With("written", written)
	}
	// Full, or the server stops, or nobody waits for the answer.
	return conflict("stdin_full", "The process does not read its input").With("written", written)
}

// conflict is the answer to what the state of a process does not allow.
func conflict(code, text string) *api.Error {
	return api.Errorf(409, "ConflictError", code, "%s", text)
}
