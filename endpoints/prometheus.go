package endpoints

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// gauges are the metrics as Prometheus reads them.
type gauges struct{ text []byte }

// Header implements [api.Body].
func (g gauges) Header(h http.Header) {
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(g.text)))
}

// Send implements [api.Body].
func (g gauges) Send(_ context.Context, w io.Writer) error {
	_, err := w.Write(g.text)
	return err
}

func (f *facts) metricsText(ctx context.Context, c *api.Call, in struct{}) (api.Body, error) {
	m, err := f.metrics(ctx, c, in)
	if err != nil {
		return nil, err
	}
	return gauges{gaugesOf(m)}, nil
}

// gaugesOf writes the fields under their JSON names.
func gaugesOf(m metricsOut) []byte {
	var b bytes.Buffer
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := "agent_sandbox_" + field.Tag.Get("json")
		value := v.Field(i).Convert(reflect.TypeFor[float64]()).Float()
		b.WriteString("# TYPE " + name + " gauge\n" + name + " " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
	}
	return b.Bytes()
}
