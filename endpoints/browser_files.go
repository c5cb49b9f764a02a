package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// downloadFolder is where downloads are kept, in the base directory.
const downloadFolder = "downloads"

type downloadsOut struct {
	Downloads []browser.Download `json:"downloads"`
}

func (s *Server) listDownloads(context.Context, *api.Call, struct{}) (downloadsOut, error) {
	if s.Browser == nil {
		return downloadsOut{[]browser.Download{}}, nil
	}
	return downloadsOut{s.Browser.Downloads()}, nil
}

// keepDownloads keeps downloads as uploads are: while that endpoint is enabled,
// by its rules, and over no file that is there.
func (s *Server) keepDownloads(c *api.Call) browser.Keep {
	rule := c.Policy.Rule("files_upload_stream")
	if rule == nil || !rule.Enabled || s.Files == nil {
		return browser.Keep{}
	}
	own := c.Policy.BaseDir()
	return browser.Keep{Max: c.MaxUpload(rule), Save: func(ctx context.Context, name string, content io.ReadSeeker) (string, error) {
		guard := s.Files.Guard(rule.Paths, own, func(string, policy.Op, policy.Decision) {})
		folder := filepath.Join(s.Files.Base(own), downloadFolder)
		return saveNew(ctx, guard, folder, name, content, func(real string) error { return extensionDecision(rule, real).Err() })
	}}
}

// mostNames bounds how many names are tried for one download.
const mostNames = 1000

// saveNew writes a file under the first name that is free: name, or name with
// a number.
func saveNew(ctx context.Context, guard *guardfs.Guard, folder, name string, content io.ReadSeeker, judge func(string) error) (string, error) {
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	for i := range mostNames {
		if i > 0 {
			name = fmt.Sprintf("%s (%d)%s", stem, i, ext)
		}
		w, err := guard.Create(filepath.Join(folder, name), guardfs.CreateOptions{NoOverwrite: true, Judge: judge})
		if err == nil {
			if err = fillNew(ctx, w, content); err == nil {
				return w.Path(), nil
			}
		}
		if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != policy.FileExists {
			return "", errors.New(api.Public(err))
		}
	}
	return "", errors.New("too many files of that name")
}

// fillNew writes the whole content.
func fillNew(ctx context.Context, w *guardfs.Writer, content io.ReadSeeker) error {
	_, err := content.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(w, content)
	}
	if err != nil {
		w.Abort()
		return err
	}
	_, err = w.Commit(ctx)
	return err
}
