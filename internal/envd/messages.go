package envd

import "time"

// The messages of package process.

type ptySize struct {
	Cols uint32 `pb:"1,cols"`
	Rows uint32 `pb:"2,rows"`
}

type ptyConfig struct {
	Size *ptySize `pb:"1,size"`
}

type processConfig struct {
	Cmd  string            `pb:"1,cmd"`
	Args []string          `pb:"2,args"`
	Envs map[string]string `pb:"3,envs"`
	Cwd  *string           `pb:"4,cwd"`
}

type empty struct{}

type processInfo struct {
	Config *processConfig `pb:"1,config"`
	PID    uint32         `pb:"2,pid"`
	Tag    *string        `pb:"3,tag"`
}

type listResponse struct {
	Processes []*processInfo `pb:"1,processes"`
}

type startRequest struct {
	Process *processConfig `pb:"1,process"`
	PTY     *ptyConfig     `pb:"2,pty"`
	Tag     *string        `pb:"3,tag"`
	Stdin   *bool          `pb:"4,stdin"`
}

type updateRequest struct {
	Process *processSelector `pb:"1,process"`
	PTY     *ptyConfig       `pb:"2,pty"`
}

type processEvent struct {
	Start     *startEvent `pb:"1,start,oneof=event"`
	Data      *dataEvent  `pb:"2,data,oneof=event"`
	End       *endEvent   `pb:"3,end,oneof=event"`
	Keepalive *empty      `pb:"4,keepalive,oneof=event"`
}

type startEvent struct {
	PID uint32 `pb:"1,pid"`
}

type dataEvent struct {
	Stdout []byte `pb:"1,stdout,oneof=output"`
	Stderr []byte `pb:"2,stderr,oneof=output"`
	PTY    []byte `pb:"3,pty,oneof=output"`
}

type endEvent struct {
	ExitCode int32   `pb:"1,exit_code,sint"`
	Exited   bool    `pb:"2,exited"`
	Status   string  `pb:"3,status"`
	Error    *string `pb:"4,error"`
}

// eventResponse is StartResponse and ConnectResponse.
type eventResponse struct {
	Event *processEvent `pb:"1,event"`
}

type sendInputRequest struct {
	Process *processSelector `pb:"1,process"`
	Input   *processInput    `pb:"2,input"`
}

type processInput struct {
	Stdin []byte `pb:"1,stdin,oneof=input"`
	PTY   []byte `pb:"2,pty,oneof=input"`
}

type streamInputRequest struct {
	Start     *streamInputStart `pb:"1,start,oneof=event"`
	Data      *streamInputData  `pb:"2,data,oneof=event"`
	Keepalive *empty            `pb:"3,keepalive,oneof=event"`
}

type streamInputStart struct {
	Process *processSelector `pb:"1,process"`
}

type streamInputData struct {
	Input *processInput `pb:"2,input"`
}

type signal int32

// EnumNames implements the enum of package connect.
func (signal) EnumNames() map[int32]string {
	return map[int32]string{0: "SIGNAL_UNSPECIFIED", 9: "SIGNAL_SIGKILL", 15: "SIGNAL_SIGTERM"}
}

type sendSignalRequest struct {
	Process *processSelector `pb:"1,process"`
	Signal  signal           `pb:"2,signal"`
}

// selectRequest is CloseStdinRequest and ConnectRequest.
type selectRequest struct {
	Process *processSelector `pb:"1,process"`
}

type processSelector struct {
	PID *uint32 `pb:"1,pid,oneof=selector"`
	Tag *string `pb:"2,tag,oneof=selector"`
}

// The messages of package filesystem.

// pathRequest is StatRequest, MakeDirRequest and RemoveRequest.
type pathRequest struct {
	Path string `pb:"1,path"`
}

// entryResponse is StatResponse, MakeDirResponse and MoveResponse.
type entryResponse struct {
	Entry *entryInfo `pb:"1,entry"`
}

type moveRequest struct {
	Source      string `pb:"1,source"`
	Destination string `pb:"2,destination"`
}

type listDirRequest struct {
	Path  string `pb:"1,path"`
	Depth uint32 `pb:"2,depth"`
}

type listDirResponse struct {
	Entries []*entryInfo `pb:"1,entries"`
}

type entryInfo struct {
	Name          string            `pb:"1,name"`
	Type          fileType          `pb:"2,type"`
	Path          string            `pb:"3,path"`
	Size          int64             `pb:"4,size"`
	Mode          uint32            `pb:"5,mode"`
	Permissions   string            `pb:"6,permissions"`
	Owner         string            `pb:"7,owner"`
	Group         string            `pb:"8,group"`
	ModifiedTime  time.Time         `pb:"9,modified_time"`
	SymlinkTarget *string           `pb:"10,symlink_target"`
	Metadata      map[string]string `pb:"11,metadata"`
	IsSymlink     bool              `pb:"12,is_symlink"`
}

// watchRequest is WatchDirRequest and CreateWatcherRequest.
type watchRequest struct {
	Path               string `pb:"1,path"`
	Recursive          bool   `pb:"2,recursive"`
	IncludeEntry       bool   `pb:"3,include_entry"`
	AllowNetworkMounts bool   `pb:"4,allow_network_mounts"`
}

type filesystemEvent struct {
	Name  string     `pb:"1,name"`
	Type  eventType  `pb:"2,type"`
	Entry *entryInfo `pb:"3,entry"`
}

type watchDirResponse struct {
	Start      *empty           `pb:"1,start,oneof=event"`
	Filesystem *filesystemEvent `pb:"2,filesystem,oneof=event"`
	Keepalive  *empty           `pb:"3,keepalive,oneof=event"`
}

// watcherID is CreateWatcherResponse, GetWatcherEventsRequest and
// RemoveWatcherRequest.
type watcherID struct {
	WatcherID string `pb:"1,watcher_id"`
}

type watcherEventsResponse struct {
	Events []*filesystemEvent `pb:"1,events"`
}

type fileType int32

const (
	typeUnspecified fileType = iota
	typeFile
	typeDirectory
	typeSymlink
)

// EnumNames implements the enum of package connect.
func (fileType) EnumNames() map[int32]string {
	return map[int32]string{0: "FILE_TYPE_UNSPECIFIED", 1: "FILE_TYPE_FILE", 2: "FILE_TYPE_DIRECTORY", 3: "FILE_TYPE_SYMLINK"}
}

type eventType int32

// EnumNames implements the enum of package connect.
func (eventType) EnumNames() map[int32]string {
	return map[int32]string{
		0: "EVENT_TYPE_UNSPECIFIED", 1: "EVENT_TYPE_CREATE", 2: "EVENT_TYPE_WRITE",
		3: "EVENT_TYPE_REMOVE", 4: "EVENT_TYPE_RENAME", 5: "EVENT_TYPE_CHMOD",
	}
}
