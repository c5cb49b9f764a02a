package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// policySource knows where the policy comes from: options, environment, file.
// It can be asked again and then reads its file anew.
type policySource struct {
	file, preset string // --policy and --preset, "" when not given
	env          *environ
	ambient      string // the file read when nothing names one
	reload       bool   // the server is running: nothing may block

	// What the loaded commands say: a policy document, and switches of groups.
	code       []byte
	codeGroups map[string]bool
}

// The most bytes read of a file. Documents are bounded to 1 MiB by their
// parser, which says so.
const (
	maxDocument  = 2 << 20
	maxTokenFile = 64 << 10
)

// document is the document in force and the file it was read from, "" for a
// variable or the default. Documents are never merged. A preset replaces the
// preset of the document and keeps the rest, above all its tokens: an option
// that tightens must not open the door.
func (s policySource) document() (d *policy.Document, file string, err error) {
	inline := s.env.get("ABX_SERVER_POLICY")
	switch named := s.env.get("ABX_SERVER_POLICY_FILE"); {
	case s.file != "":
		file = s.file
	case s.code != nil && s.preset == "":
		d, err = policy.Parse(s.code, policy.JSON)
	case inline != "":
		d, err = policy.Parse([]byte(inline), policy.JSON)
	case named != "":
		file = named
	default:
		if _, statErr := os.Stat(s.ambient); !errors.Is(statErr, fs.ErrNotExist) {
			file = s.ambient
		}
	}
	switch {
	case file != "":
		d, err = s.read(file)
	case d == nil && err == nil:
		d = policy.Empty()
	}
	if err == nil && s.preset != "" {
		if d, err = d.WithPreset(s.preset); err != nil {
			return nil, "", &failure{"policy", err} // not a fault of the file
		}
	}
	if err != nil {
		return nil, file, &failure{"policy", located(err, file)}
	}
	return d, file, nil
}

func (s policySource) read(file string) (*policy.Document, error) {
	if s.reload { // a pipe was fine at the start, but would now hold up the signals
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: not a regular file", file)
		}
	}
	text, err := readBounded(file, maxDocument)
	if err != nil {
		return nil, err
	}
	format := policy.JSON
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml":
		format = policy.YAML
	}
	return policy.Parse(text, format)
}

func readBounded(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: more than %d bytes", file, most)
	}
	return text, err
}

// located adds the file and, where it is known, line and column.
func located(err error, file string) error {
	line, column := 0, 0
	if e, ok := errors.AsType[*policy.DocumentError](err); ok {
		line, column = e.Line, e.Column
	} else if e, ok := errors.AsType[*policy.ConfigError](err); ok {
		line, column = e.Line, e.Column
	} else {
		return err // the system's errors name their file
	}
	switch {
	case file == "":
		return err
	case line == 0:
		return fmt.Errorf("%w (%s)", err, file)
	}
	return fmt.Errorf("%w (%s:%d:%d)", err, file, line, column)
}

// load reads the document and compiles it for the endpoints. The error is a
// [*failure].
func (s policySource) load(rows []policy.Row) (*loadedPolicy, error) {
	d, file, err := s.document()
	if err != nil {
		return nil, err
	}
	groups, err := policy.ParseEnabledGroups(s.env.get("ABX_SERVER_ENABLED_GROUPS"))
	if err != nil {
		return nil, &failure{"configuration", err}
	}
	p, err := policy.Compile(d, rows, policy.Options{
		EnvGroups:   groups,
		CodeGroups:  s.codeGroups,
		ServerToken: s.env.get("ABX_SERVER_TOKEN") != "",
		Getenv:      s.env.get,
		ReadFile:    func(name string) ([]byte, error) { return readBounded(name, maxTokenFile) },
		RootExists:  func(dir string) bool { _, err := os.Stat(dir); return err == nil },
	})
	if err != nil {
		return nil, &failure{"configuration", located(err, file)}
	}
	return &loadedPolicy{p, d.TokenEnv()}, nil
}

// loadedPolicy is a policy with the variables its tokens came from.
type loadedPolicy struct {
	*policy.Policy
	tokenEnv []string
}
