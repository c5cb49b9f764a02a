package registry

import (
	"context"
	"strings"
	"testing"
)

func BenchmarkPythonCall(b *testing.B) {
	r := loadPython(b, nil)
	call := r.call(`{"n":7}`)
	cmd := r.Lookup("number")
	b.Run("one after the other", func(b *testing.B) {
		for b.Loop() {
			if _, err := cmd.Run(context.Background(), call); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many at once", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := cmd.Run(context.Background(), call); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkPythonLongResult(b *testing.B) {
	r := loadPython(b, nil)
	call := r.call(`{"n":1000000}`)
	b.SetBytes(1000000)
	for b.Loop() {
		if _, err := r.runCall(context.Background(), "big", call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkManifestCall(b *testing.B) {
	r := load(b, map[string]string{"m.yaml": "version: 1\ncommands: [{name: t, argv: [/bin/true], stdin: none}]"}, nil, "m.yaml")
	call := r.call(`{}`)
	for b.Loop() {
		if _, err := r.runCall(context.Background(), "t", call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseMessage(b *testing.B) {
	for name, line := range map[string]string{
		"small": `{"op":"result","id":7,"status":200,"body":"hello"}`,
		"1MB":   `{"op":"result","id":7,"status":200,"body":["` + strings.Repeat("x", 1000000) + `"]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := parseMessage([]byte(line)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLoadManifest(b *testing.B) {
	text := []byte(everything)
	h := &host{}
	for b.Loop() {
		if _, err := h.parseManifest(text, false, "/"); err != nil {
			b.Fatal(err)
		}
	}
}
