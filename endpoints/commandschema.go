package endpoints

import (
	"encoding/json"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// schema is the JSON Schema of a command's arguments.
type schema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional bool                `json:"additionalProperties"`
}

type property struct {
	Type        string            `json:"type"`
	Items       *items            `json:"items,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
}

type items struct {
	Type string            `json:"type"`
	Enum []json.RawMessage `json:"enum,omitempty"`
}

// schemaTypes are the types of a schema by those of arguments.
var schemaTypes = map[string]string{
	"string": "string", "integer": "integer", "float": "number", "boolean": "boolean", "string_array": "array",
}

func schemaOf(args []registry.Arg) schema {
	out := schema{Type: "object", Properties: map[string]property{}, Required: []string{}}
	for _, a := range args {
		p := property{Type: schemaTypes[a.Type], Description: a.Description}
		if a.Type == "string_array" {
			p.Items = &items{Type: "string", Enum: schemaValues("string", a.Choices)}
		} else {
			p.Enum = schemaValues(p.Type, a.Choices)
		}
		if a.Default != nil {
			p.Default = schemaValue(p.Type, *a.Default)
		}
		if a.Required {
			out.Required = append(out.Required, a.Name)
		}
		out.Properties[a.Name] = p
	}
	return out
}

func schemaValues(typ string, texts []string) []json.RawMessage {
	var out []json.RawMessage
	for _, t := range texts {
		if v := schemaValue(typ, t); v != nil {
			out = append(out, v)
		}
	}
	return out
}

// schemaValue is the text of a value as JSON, nil for text that is none of the
// type.
func schemaValue(typ, text string) json.RawMessage {
	if typ == "string" {
		return api.AppendText(nil, text)
	}
	if typ == "boolean" {
		text = strings.ToLower(text) // Python writes True
	}
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
