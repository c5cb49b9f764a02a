// Finds elements and tells whether they can be acted on. It runs in a world of
// its own, where the page's scripts cannot change what it stands on.
globalThis.abx = (() => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  // A page that is not drawn has no frames; waiting for one must end all the same.
  const frame = () => new Promise((done) => { requestAnimationFrame(done); setTimeout(done, 100); });
  const squeeze = (s) => s.replace(/\s+/g, ' ').trim();

  // roots are the document and the open shadow trees in it.
  function* roots(root) {
    yield root;
    for (const el of root.querySelectorAll('*')) if (el.shadowRoot) yield* roots(el.shadowRoot);
  }

  function byCSS(selector) {
    const first = document.querySelector(selector);
    if (first) return first;
    for (const root of roots(document)) {
      const el = root.querySelector(selector);
      if (el) return el;
    }
    return null;
  }

  function byXPath(path) {
    if (path.startsWith('/')) path = '.' + path;
    return document.evaluate(path, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue;
  }

  const silent = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'HEAD', 'TEMPLATE', 'TITLE']);

  function textOf(el) {
    if (el instanceof HTMLInputElement && (el.type === 'submit' || el.type === 'button' || el.type === 'reset')) return squeeze(el.value);
    let text = '';
    for (const node of el.shadowRoot ? [el.shadowRoot, el] : [el]) {
      for (const c of node.childNodes) {
        if (c.nodeType === 3) text += c.nodeValue;
        else if (c.nodeType === 1 && !silent.has(c.nodeName)) text += c.childNodes.length || c.shadowRoot || c.nodeName === 'INPUT' ? textOf(c) : '';
      }
    }
    return squeeze(text);
  }

  // byText finds the innermost element with the text: a part of it in any case,
  // or, in quotes, the whole of it, or a regular expression between slashes.
  function byText(want) {
    let has, is;
    const pattern = /^\/(.*)\/([a-z]*)$/.exec(want);
    if (pattern) {
      const re = new RegExp(pattern[1], pattern[2].replace('g', ''));
      has = () => true; // what holds for a part need not hold for the whole
      is = (s) => re.test(s);
    } else if (want.length > 1 && (want[0] === '"' || want[0] === "'") && want.endsWith(want[0])) {
      const exact = squeeze(want.slice(1, -1));
      has = (s) => s.includes(exact);
      is = (s) => s === exact;
    } else {
      const part = squeeze(want).toLowerCase();
      has = is = (s) => s.toLowerCase().includes(part);
    }
    const visit = (el) => {
      if (silent.has(el.nodeName)) return null;
      const text = textOf(el);
      if (!has(text)) return null;
      for (const parent of el.shadowRoot ? [el.shadowRoot, el] : [el]) {
        for (const c of parent.children) {
          const found = visit(c);
          if (found) return found;
        }
      }
      return is(text) ? el : null;
    };
    return document.documentElement && visit(document.body || document.documentElement);
  }

  function find(selector) {
    selector = selector.trim();
    if (selector.startsWith('text=')) return byText(selector.slice(5));
    if (selector.startsWith('xpath=')) return byXPath(selector.slice(6));
    if (selector.startsWith('//') || selector.startsWith('..')) return byXPath(selector);
    if (selector.startsWith('css=')) selector = selector.slice(4);
    return byCSS(selector);
  }

  function visible(el) {
    const style = getComputedStyle(el);
    if (style.visibility !== 'visible') return false;
    if (style.display === 'contents') return [...el.children].some(visible) || el.textContent.trim() !== '';
    const box = el.getBoundingClientRect();
    return box.width > 0 && box.height > 0;
  }

  const enabled = (el) => !el.matches(':disabled') && !el.closest('[aria-disabled="true"]');

  function editable(el) {
    if (el instanceof HTMLInputElement || el instanceof HTMLTextAreaElement) return !el.readOnly;
    return true;
  }

  const box = (el) => { const r = el.getBoundingClientRect(); return { x: r.x, y: r.y, width: r.width, height: r.height }; };
  const same = (a, b) => a.x === b.x && a.y === b.y && a.width === b.width && a.height === b.height;

  // parentOf leaves shadow trees.
  const parentOf = (node) => node.assignedSlot || node.parentNode || node.host || null;
  function inside(node, el) {
    for (; node; node = parentOf(node)) if (node === el) return true;
    return false;
  }

  function topAt(x, y) {
    let root = document, el = null;
    for (;;) {
      const hit = root.elementFromPoint(x, y);
      if (!hit || hit === el) return el;
      el = hit;
      if (!el.shadowRoot) return el;
      root = el.shadowRoot;
    }
  }

  // target is where to point at an element: the middle of what is seen of its
  // first box.
  function target(el) {
    for (const r of el.getClientRects()) {
      const left = Math.max(0, r.left), right = Math.min(innerWidth, r.right);
      const top = Math.max(0, r.top), bottom = Math.min(innerHeight, r.bottom);
      if (right - left > 0 && bottom - top > 0) return { x: (left + right) / 2, y: (top + bottom) / 2 };
    }
    return null;
  }

  // lacks says what an element lacks for an action; '' is nothing.
  async function lacks(el, need) {
    if (!el.isConnected) return 'attached';
    if (!visible(el)) return 'visible';
    if (need.enabled && !enabled(el)) return 'enabled';
    if (need.editable && !editable(el)) return 'editable';
    let before = box(el);
    await frame();
    if (!same(before, box(el))) return 'stable';
    el.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
    if (!need.pointer) return '';
    let point = target(el);
    if (!point) {
      el.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      point = target(el);
    }
    if (!point) return 'in view';
    const hit = topAt(point.x, point.y);
    const label = hit && hit.closest && hit.closest('label');
    if (!hit || !(inside(hit, el) || (label && label.control === el))) {
      el.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
      const again = target(el);
      const other = again && topAt(again.x, again.y);
      if (!other || !inside(other, el)) return 'uncovered';
      return again;
    }
    return point;
  }

  // ready waits until the element that what names can be acted on.
  async function ready(what, need, limit) {
    const end = Date.now() + limit;
    let missing = 'attached';
    for (;;) {
      const el = typeof what === 'string' ? find(what) : what;
      if (el && el.nodeType === 1) {
        const got = await lacks(el, need);
        if (typeof got === 'object' || got === '') {
          const at = typeof got === 'object' ? got : {};
          return { x: at.x || 0, y: at.y || 0, box: box(el), scroll: { x: scrollX, y: scrollY }, element: need.keep ? (api.kept = el, true) : false };
        }
        missing = got;
        if (typeof what !== 'string' && got === 'attached') return { missing };
      } else {
        missing = 'attached';
      }
      if (Date.now() >= end) return { missing };
      await pause(Math.min(50, Math.max(1, end - Date.now())));
    }
  }

  // focus puts the cursor into an element, and empties it if asked.
  function focus(clear) {
    const el = api.kept;
    api.kept = null;
    if (document.activeElement !== el) el.focus();
    if (!clear) return true;
    if (el instanceof HTMLInputElement || el instanceof HTMLTextAreaElement) {
      el.select();
      if (el.value === '') return true;
      if (!document.execCommand('delete') || el.value !== '') { // such as a number or a date
        el.value = '';
        el.dispatchEvent(new Event('input', { bubbles: true }));
      }
    } else {
      const all = document.createRange();
      all.selectNodeContents(el);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(all);
      document.execCommand('delete');
    }
    return true;
  }

  // state tells how it is with a selector, for waits.
  function state(selector) {
    const el = find(selector);
    if (!el) return 'detached';
    return visible(el) ? 'visible' : 'hidden';
  }

  // select chooses the options that have a value or a label of the list.
  function select(wanted) {
    const el = api.kept;
    api.kept = null;
    if (!(el instanceof HTMLSelectElement)) throw new Error('The element is no select');
    const options = [...el.options];
    const find = (w) => options.find((o) => o.value === w) || options.find((o) => squeeze(o.label || o.text) === squeeze(w));
    const chosen = wanted.map((w) => {
      const o = find(w);
      if (!o) throw new Error('There is no option ' + JSON.stringify(w));
      return o;
    });
    if (!el.multiple && chosen.length > 1) throw new Error('Only one option can be selected');
    for (const o of options) o.selected = chosen.includes(o);
    el.dispatchEvent(new Event('input', { bubbles: true }));
    el.dispatchEvent(new Event('change', { bubbles: true }));
    return [...el.selectedOptions].map((o) => o.value);
  }

  function scroll(x, y) {
    scrollBy({ left: x, top: y, behavior: 'instant' });
    return { x: scrollX, y: scrollY };
  }

  // fileInput is the input that a selector, an element or its label means.
  function fileInput(what) {
    let el = typeof what === 'string' ? find(what) : what;
    if (el instanceof HTMLLabelElement) el = el.control;
    if (!el) return null;
    if (!(el instanceof HTMLInputElement) || el.type !== 'file') throw new Error('The element takes no files');
    return el;
  }

  function hasText(text) {
    return !!document.body && squeeze(document.body.innerText).includes(squeeze(text));
  }

  const api = { find, ready, focus, state, select, scroll, fileInput, hasText, kept: null };
  return api;
})();
