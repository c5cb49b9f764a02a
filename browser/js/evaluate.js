// Runs a script of a caller in the page and writes its value as JSON. The two
// names in capitals are filled in.
(async () => {
  const source = __SOURCE__, most = __MOST__;
  const { stringify } = JSON, { isArray } = Array;
  const parses = (text) => { try { new Function('return (' + text + '\n)'); return true; } catch { return false; } };
  let text = source;
  if (/^\s*(async\s+function|function|async)\b/.test(text) && parses(text.trim().replace(/;+\s*$/, ''))) text = '(' + text.trim().replace(/;+\s*$/, '') + '\n)';
  let value = await (0, eval)(text);
  if (typeof value === 'function') value = await value();

  let out = '';
  const put = (s) => {
    out += s;
    if (out.length > most) throw new Error('the result is too large');
  };
  const own = (o, name) => { try { return o[name]; } catch { return undefined; } };
  const is = (v, name) => { try { return typeof globalThis[name] === 'function' && v instanceof globalThis[name]; } catch { return false; } };
  const path = []; // pages may have put something of theirs in the place of Set
  const write = (v) => {
    switch (typeof v) {
      case 'string': return put(stringify(v));
      case 'boolean': return put(v ? 'true' : 'false');
      case 'number': return put(Number.isFinite(v) ? stringify(v) : 'null');
      case 'bigint': return put(v.toString());
      case 'object': break;
      default: return put('null');
    }
    if (v === null) return put('null');
    if (v === globalThis || is(v, 'Window')) return put('"ref: <Window>"');
    if (is(v, 'Document')) return put('"ref: <Document>"');
    if (is(v, 'Node')) return put('"ref: <Node>"');
    if (is(v, 'Error')) return put(stringify(String(own(v, 'message'))));
    if (is(v, 'Date')) return put(Number.isNaN(v.getTime()) ? 'null' : stringify(v.toISOString()));
    if (is(v, 'RegExp') || is(v, 'URL')) return put(stringify(String(v)));
    if (path.includes(v)) return put('"[Circular]"');
    if (path.length >= 200) throw new Error('the result is too deep');
    path.push(v);
    if (is(v, 'Map')) v = [...v];
    else if (is(v, 'Set')) v = [...v];
    else if (is(v, 'ArrayBuffer')) v = new Uint8Array(v);
    if (typeof own(v, 'toJSON') === 'function') {
      write(v.toJSON());
    } else if (isArray(v) || ArrayBuffer.isView(v) && typeof v.length === 'number') {
      put('[');
      for (let i = 0; i < v.length; i++) {
        if (i) put(',');
        write(v[i]);
      }
      put(']');
    } else {
      put('{');
      let first = true;
      for (const name of Object.keys(v)) {
        if (!first) put(',');
        first = false;
        put(stringify(name));
        put(':');
        write(own(v, name));
      }
      put('}');
    }
    path.pop();
  };
  write(value);
  return out;
})()
