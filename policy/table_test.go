package policy

import (
	"slices"
	"strings"
)

// publishedRows is the endpoint table of the published server with the knobs
// we add to it.
func publishedRows() []Row {
	var rows []Row
	for line := range strings.Lines(publishedTable) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 8 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		flags := strings.Fields(f[7])
		op, _ := ParseOp(f[8])
		rows = append(rows, Row{
			Name: f[0], Method: f[1], Path: f[2], Group: f[3], Scopes: strings.Fields(f[4]),
			Limits: strings.Fields(f[5]), Params: strings.Fields(f[6]), Op: op,
			Paths: slices.Contains(flags, "paths"), Exec: slices.Contains(flags, "exec"), Streaming: slices.Contains(flags, "S"),
			Virtual: slices.Contains(flags, "virtual"), Anonymous: slices.Contains(flags, "anonymous"), Mutates: slices.Contains(flags, "mutates"),
		})
	}
	return rows
}

// allRows adds the endpoints the published server does not have.
func allRows() []Row {
	rows := publishedRows()
	for name := range strings.FieldsSeq("clone init branch add commit reset restore push pull remotes config") {
		rows = append(rows, Row{
			Name: "git_" + name, Method: "POST", Path: "/git/" + name, Group: "dev_tools",
			Scopes: []string{"devtools:run"}, Follows: "code_run", Paths: true, Op: Write, Mutates: true,
			Exec: name == "clone" || name == "push" || name == "pull",
		})
	}
	for name := range strings.FieldsSeq("cookies storage cdp") {
		rows = append(rows, Row{
			Name: "browser_" + name, Method: "GET", Path: "/browser/" + name, Group: "browser",
			Scopes: []string{"browser:evaluate"}, Follows: "browser_evaluate", Mutates: true, Exec: name == "cdp",
		})
	}
	return append(rows,
		Row{
			Name: "envd_init", Method: "POST", Path: "/init", Group: "system", Scopes: []string{"system:write"},
			Follows: "env_set", Virtual: true, Mutates: true,
		},
		Row{Name: "upload_raw", Method: "PUT", Path: "/files/raw", As: "files_upload_stream", Group: "file_ops"},
	)
}

const (
	execLimits = "timeout_seconds max_output_bytes max_processes"
	execParams = "allow_commands deny_commands allow_users"

	// id | method | path | group | scopes | limits | params | flags | op
	publishedTable = `
health | GET | /health | core | | | | anonymous | read
capabilities | GET | /capabilities | core | core:read | | | | read
capabilities_check | POST | /capabilities/check | core | core:read | | | | read
list_commands | GET | /commands | commands | commands:list | | | | read
run_command | POST | /commands/{name} | commands | commands:run | timeout_seconds max_output_bytes | | mutates | read
files_list | GET | /files/list | file_ops | files:read | max_depth max_entries | | paths | read
files_stat | GET | /files/stat | file_ops | files:read | | | paths | read
files_mkdir | POST | /files/mkdir | file_ops | files:write | | | paths mutates | write
files_delete | DELETE | /files | file_ops | files:delete | | | paths mutates | delete
files_move | POST | /files/move | file_ops | files:write files:delete | | | paths mutates | delete
files_search | POST | /files/search | file_ops | files:read | max_depth max_results timeout_seconds | | paths | read
files_upload_stream | POST | /files/upload-stream | file_ops | files:write | max_bytes | overwrite allow_extensions deny_extensions | paths mutates | write
files_download_stream | GET | /files/download-stream | file_ops | files:read | max_bytes | | paths | read
files_archive | POST | /files/archive | file_ops | files:read | max_bytes max_files | | paths | read
files_watch | GET | /files/watch | file_ops | files:read | max_duration_seconds | | paths S | read
shell | POST | /shell | process | process:run | ` + execLimits + ` | ` + execParams + ` | paths exec mutates | exec
shell_stream | POST | /shell/stream | process | process:run | ` + execLimits + ` | ` + execParams + ` | paths exec mutates S | exec
process_start | POST | /process/start | process | process:run | ` + execLimits + ` | ` + execParams + ` | paths exec mutates | exec
process_list | GET | /process/list | process | process:read | | | | read
process_detail | GET | /process/{pid} | process | process:read | | | | read
process_signal | POST | /process/{pid}/signal | process | process:manage | | allowed_signals | mutates | read
process_stdin | POST | /process/{pid}/stdin | process | process:manage | | | mutates | read
process_output | GET | /process/{pid}/output | process | process:read | | | | read
pty_create_session | POST | /pty/sessions | terminal | terminal:use | max_sessions | shells env_deny | mutates | read
pty_list_sessions | GET | /pty/sessions | terminal | terminal:use | | | | read
pty_detail | GET | /pty/sessions/{id} | terminal | terminal:use | | | | read
pty_resize | POST | /pty/sessions/{id}/resize | terminal | terminal:use | | | mutates | read
pty_delete_session | DELETE | /pty/sessions/{id} | terminal | terminal:use | | | mutates | read
pty_connect | WS | /pty | terminal | terminal:use | | | virtual mutates S | read
system_info | GET | /system/info | system | system:read | | | | read
env_get | GET | /env | system | system:read | | allow_vars deny_vars | | read
env_set | POST | /env | system | system:write | | allow_vars deny_vars | mutates | read
ports | GET | /ports | system | system:read | | | | read
packages | GET | /packages | system | system:read | | | | read
system_metrics | GET | /system/metrics | system | system:read | | | | read
code_run | POST | /code/run | dev_tools | devtools:run | max_output_bytes timeout_seconds | languages | exec mutates | read
git_status | GET | /git/status | dev_tools | devtools:read | | | paths | read
git_diff | GET | /git/diff | dev_tools | devtools:read | | | paths | read
browser_navigate | POST | /browser/navigate | browser | browser:use | | url_allow url_deny block_private_networks allow_loopback | exec mutates | read
browser_screenshot | POST | /browser/screenshot | browser | browser:use | | | | read
browser_content | GET | /browser/content | browser | browser:use | | | | read
browser_click | POST | /browser/click | browser | browser:use | | | mutates | read
browser_type | POST | /browser/type | browser | browser:use | | | mutates | read
browser_evaluate | POST | /browser/evaluate | browser | browser:evaluate | | | exec mutates | read
browser_pdf | POST | /browser/pdf | browser | browser:use | | | | read
browser_console | GET | /browser/console | browser | browser:use | | | | read
`
)
