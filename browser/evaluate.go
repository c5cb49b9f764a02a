package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

//go:embed js/evaluate.js
var evaluateJS string

// endMargin is how long before the end of its time a script that was ended is
// taken for one that took too long.
const endMargin = 50 * time.Millisecond

// maxResult bounds the JSON of a script's value, in UTF-16 units.
const maxResult = 16 << 20

// Evaluate runs a script: an expression, statements, or a function, which is
// called. It returns its value as JSON.
func (p *Page) Evaluate(ctx context.Context, script string) (json.RawMessage, error) {
	source, err := json.Marshal(script)
	if err != nil {
		return nil, err
	}
	code := strings.Replace(evaluateJS, "__MOST__", strconv.Itoa(maxResult), 1)
	code = strings.Replace(code, "__SOURCE__", string(source), 1)
	params := object{"expression": code, "awaitPromise": true, "returnByValue": true, "userGesture": true}
	end, bounded := ctx.Deadline()
	if bounded {
		// Chrome then ends a script that never lets go, and the page is usable
		// at once.
		params["timeout"] = max(1, time.Until(end).Milliseconds())
	}
	var out evaluated
	err = p.call(ctx, "Runtime.evaluate", params, &out)
	switch {
	case err != nil:
		// How it tells that it has ended a script differs.
		if _, refused := errors.AsType[*protocolError](err); refused && bounded && time.Until(end) < endMargin {
			return nil, context.DeadlineExceeded
		}
		return nil, err
	case out.Exception != nil:
		return nil, failure("%s", out.Exception.message())
	}
	var text string
	if json.Unmarshal(out.Result.Value, &text) != nil || !json.Valid([]byte(text)) {
		return nil, failure("The value of the script cannot be written as JSON")
	}
	return json.RawMessage(text), nil
}
