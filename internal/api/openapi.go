package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
)

// OpenAPI is the API document of a table, in OpenAPI 3.1, derived from the
// rows and the types they speak. The text is the same for the same table.
func OpenAPI(table []Endpoint, version string) ([]byte, error) {
	paths := map[string]map[string]any{}
	for i := range table {
		ep := &table[i]
		if ep.Virtual {
			continue
		}
		item := paths[ep.Path]
		if item == nil {
			item = map[string]any{}
			paths[ep.Path] = item
		}
		item[strings.ToLower(ep.Method)] = operation(ep)
	}
	doc := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "agent-sandbox-server", "version": version,
			"license": map[string]any{"name": "Apache-2.0"},
		},
		"paths": paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{
				"bearer":      map[string]any{"type": "http", "scheme": "bearer"},
				"accessToken": map[string]any{"type": "apiKey", "in": "header", "name": "X-Access-Token"},
			},
			"schemas": map[string]any{"Error": errorSchema},
		},
	}
	return json.MarshalIndent(doc, "", "  ")
}

var errorSchema = map[string]any{
	"type":     "object",
	"required": []string{"error", "type"},
	"properties": map[string]any{
		"error":       map[string]any{"type": "string", "description": "For people; may change."},
		"type":        map[string]any{"type": "string", "description": "The class of the failure."},
		"code":        map[string]any{"type": "string", "description": "Stable name of the failure."},
		"endpoint":    map[string]any{"type": "string"},
		"rule":        map[string]any{"type": "string"},
		"scope":       map[string]any{"type": "string"},
		"limit":       map[string]any{"type": "integer"},
		"retry_after": map[string]any{"type": "integer"},
	},
}

func operation(ep *Endpoint) map[string]any {
	op := map[string]any{
		"operationId": ep.Name,
		"summary":     ep.Summary,
		"tags":        []string{ep.Group},
		"responses": map[string]any{
			"200":     success(ep),
			"default": map[string]any{"description": "A refusal or a failure.", "content": jsonContent(map[string]any{"$ref": "#/components/schemas/Error"})},
		},
		"x-scopes": append([]string{}, ep.Scopes...),
	}
	if ep.As != "" {
		op["x-judged-as"] = ep.As
	}
	if ep.Anonymous {
		op["security"] = []any{}
	} else {
		op["security"] = []any{map[string]any{"bearer": []string{}}, map[string]any{"accessToken": []string{}}, map[string]any{}}
	}
	if params := parameters(ep); len(params) > 0 {
		op["parameters"] = params
	}
	switch ep.body {
	case rawBody:
		op["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/octet-stream": map[string]any{}}}
	case jsonBody, streamedBody:
		if schema := fieldsSchema(ep.In); schema != nil && ep.Method != http.MethodDelete {
			op["requestBody"] = map[string]any{"content": jsonContent(schema)}
		}
	}
	return op
}

func success(ep *Endpoint) map[string]any {
	out := map[string]any{"description": "Success."}
	switch {
	case ep.upgrade:
		out["description"] = "The connection is upgraded."
	case ep.Streaming:
		out["content"] = map[string]any{"text/event-stream": map[string]any{"schema": map[string]any{"type": "string"}}}
	case ep.Out.Implements(reflect.TypeFor[Body]()) && ep.Out.Kind() == reflect.Interface:
		out["content"] = map[string]any{"application/json": map[string]any{}, "application/octet-stream": map[string]any{}}
	default:
		out["content"] = jsonContent(schemaOf(ep.Out))
	}
	return out
}

func jsonContent(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

var pathParams = lazyregexp.New(`\{([a-z_]+)\}`)

func parameters(ep *Endpoint) []any {
	var out []any
	add := func(name, in string, required bool, doc string, t reflect.Type) {
		p := map[string]any{"name": name, "in": in, "schema": schemaOf(t)}
		if required {
			p["required"] = true
		}
		if doc != "" {
			p["description"] = doc
		}
		out = append(out, p)
	}
	documented := map[string]bool{}
	for _, f := range inputs(ep.In) {
		if name := f.Tag.Get("path"); name != "" {
			documented[name] = true
			add(name, "path", true, f.Tag.Get("doc"), f.Type)
		}
	}
	for _, m := range pathParams.FindAllStringSubmatch(ep.Path, -1) {
		if !documented[m[1]] {
			add(m[1], "path", true, "", reflect.TypeFor[string]())
		}
	}
	for _, f := range inputs(ep.In) {
		if name := f.Tag.Get("query"); name != "" {
			add(name, "query", false, f.Tag.Get("doc"), f.Type)
		}
	}
	return out
}

// inputs are the fields of a request type, those of embedded structs too.
func inputs(t reflect.Type) []reflect.StructField {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return reflect.VisibleFields(t)
}

// fieldsSchema is the schema of a request body, nil when it has no members.
func fieldsSchema(t reflect.Type) map[string]any {
	props := map[string]any{}
	for _, f := range inputs(t) {
		name := f.Tag.Get("json")
		if name == "" {
			continue
		}
		inner, ok := f.Type.FieldByName("V")
		if !ok {
			continue
		}
		props[name] = described(schemaOf(inner.Type), f)
	}
	if len(props) == 0 {
		return nil
	}
	return map[string]any{"type": "object", "properties": props}
}

func described(schema map[string]any, f reflect.StructField) map[string]any {
	if doc := f.Tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	return schema
}

// schemaOf is the JSON schema of a Go type as encoding/json writes it.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[Number]():
		return map[string]any{"type": "number"}
	case t == reflect.TypeFor[Name]():
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		s := schemaOf(t.Elem())
		if typ, ok := s["type"].(string); ok {
			s["type"] = []string{typ, "null"}
		}
		return s
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		return structSchema(t)
	}
	return map[string]any{}
}

func structSchema(t reflect.Type) map[string]any {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return map[string]any{}
	}
	props := map[string]any{}
	required := []string{}
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, opts, _ := strings.Cut(tag, ",")
		if f.Anonymous && tag == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				sub := structSchema(inner)
				maps.Copy(props, sub["properties"].(map[string]any))
				if r, ok := sub["required"].([]string); ok {
					required = append(required, r...)
				}
			}
			continue
		}
		if name == "-" || name == "" || !f.IsExported() {
			continue
		}
		props[name] = described(schemaOf(f.Type), f)
		if !strings.Contains(opts, "omit") {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": props}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	return s
}
