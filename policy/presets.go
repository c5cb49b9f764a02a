package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Presets are the names of the built-in documents.
var Presets = []string{"default", "transfer-only", "read-only", "hardened", "locked"}

// Presets as documents. What they say about endpoints that the published
// server does not have is derived from the flags of their rows, see layers.go.
var presetTexts = map[string]string{
	"default": `{}`,
	"transfer-only": `{"endpoints": {
		"*": {"enabled": false},
		"files_upload_stream": {"enabled": true},
		"files_download_stream": {"enabled": true}}}`,
	"read-only": `{"groups": {"process": false, "terminal": false, "dev_tools": false, "browser": false},
		"endpoints": {
		"files_mkdir": {"enabled": false},
		"files_delete": {"enabled": false},
		"files_move": {"enabled": false},
		"files_upload_stream": {"enabled": false},
		"env_set": {"enabled": false}}}`,
	"hardened": `{"groups": {"process": false, "terminal": false, "dev_tools": false, "browser": false},
		"defaults": {"audit": "deny"},
		"endpoints": {
		"env_set": {"enabled": false},
		"files_*": {"paths": {"symlinks": "within", "deny": ["/proc", "/sys", "/dev", "**/.ssh",
			"**/.env", "**/.env.*", "**/*.pem", "**/id_rsa*", "**/id_ed25519*"]}}}}`,
	"locked": `{"endpoints": {
		"*": {"enabled": false},
		"list_commands": {"enabled": true},
		"run_command": {"enabled": true}}}`,
}

// presetBodies are the parsed presets.
var presetBodies = sync.OnceValue(func() map[string]*Document {
	bodies := map[string]*Document{}
	for name, text := range presetTexts {
		d, err := Parse([]byte(text), JSON)
		if err != nil {
			panic("preset " + name + ": " + err.Error())
		}
		bodies[name] = d
	}
	return bodies
})

// PresetDocument is the document that holds just the preset of that name. The
// error is a [*DocumentError].
func PresetDocument(name string) (*Document, error) {
	return Empty().WithPreset(name)
}

// Empty is the document {}.
func Empty() *Document {
	return &Document{root: &node{kind: objectNode}, preset: "default"}
}

func checkPreset(where, name string) *DocumentError {
	if slices.Contains(Presets, name) {
		return nil
	}
	return &DocumentError{Where: where, Text: fmt.Sprintf("unknown preset '%s'%s; one of %s",
		shorten(name), didYouMean(name, Presets), strings.Join(Presets, ", "))}
}

// publishedIDs are the endpoints of the published server that documents may
// name. A build that lacks one accepts its name and says so.
var publishedIDs = strings.Fields(`
	health capabilities capabilities_check
	list_commands run_command
	files_list files_stat files_mkdir files_delete files_move files_search
	files_upload_stream files_download_stream files_archive files_watch
	shell shell_stream process_start process_list process_detail process_signal process_stdin process_output
	pty_create_session pty_list_sessions pty_detail pty_resize pty_delete_session pty_connect
	system_info env_get env_set ports packages system_metrics
	code_run git_status git_diff
	browser_navigate browser_screenshot browser_content browser_click browser_type browser_evaluate
	browser_pdf browser_console`)
