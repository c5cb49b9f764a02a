package endpoints

import (
	"mime"
	"path"
	"strings"
)

// mimeTypes are the types of names an agent meets most; the system's own table
// is not asked for these, so that answers are the same in every image.
var mimeTypes = map[string]string{
	".txt": "text/plain; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".log": "text/plain; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml",
	".xml": "application/xml", ".py": "text/x-python; charset=utf-8", ".go": "text/x-go; charset=utf-8", ".sh": "text/x-shellscript; charset=utf-8",
	".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".svg": "image/svg+xml", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".wasm": "application/wasm", ".mp4": "video/mp4", ".mp3": "audio/mpeg",
}

const anyBytes = "application/octet-stream"

// mimeType is the media type a file's name suggests.
func mimeType(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if t, ok := mimeTypes[ext]; ok {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return anyBytes
}
