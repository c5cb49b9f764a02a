package browser

import (
	"context"
	"time"
	"unicode"
)

// maxPending is how many keys may be under way to the page.
const maxPending = 64

// Type puts the cursor into an element, empties it if clear is set, and presses
// one key for each character, with a pause between them.
func (p *Page) Type(ctx context.Context, what Target, text string, pause time.Duration, clear bool) error {
	if _, err := p.ready(ctx, what, need{Enabled: true, Editable: true, Keep: true}); err != nil {
		return err
	}
	if err := p.ask(ctx, "focus", nil, values(clear)); err != nil {
		return err
	}
	sent := 0
	for _, c := range text {
		if sent > 0 && pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		sent++
		k := keyOf(c)
		if pause == 0 && sent%maxPending != 0 {
			p.post("Input.dispatchKeyEvent", k.down())
			p.post("Input.dispatchKeyEvent", k.up())
			continue
		}
		if err := p.press(ctx, k); err != nil {
			return err
		}
	}
	return p.settle(ctx)
}

func (t *tab) press(ctx context.Context, k key) error {
	for _, params := range []object{k.down(), k.up()} {
		if err := t.call(ctx, "Input.dispatchKeyEvent", params, nil); err != nil && !moved(err) {
			return err
		}
	}
	return nil
}

// key is a key of a US keyboard, or a character that such a keyboard has not.
type key struct {
	name, code, text string
	number           int // Windows' virtual key code
	modifiers        int
}

const shift = 8 // the bit of the modifier

func (k key) down() object {
	p := object{"type": "keyDown", "key": k.name, "modifiers": k.modifiers}
	if k.code != "" {
		p["code"], p["windowsVirtualKeyCode"], p["nativeVirtualKeyCode"] = k.code, k.number, k.number
	}
	if k.text == "" {
		p["type"] = "rawKeyDown"
		return p
	}
	p["text"], p["unmodifiedText"] = k.text, k.text
	return p
}

func (k key) up() object {
	p := object{"type": "keyUp", "key": k.name, "modifiers": k.modifiers}
	if k.code != "" {
		p["code"], p["windowsVirtualKeyCode"], p["nativeVirtualKeyCode"] = k.code, k.number, k.number
	}
	return p
}

// punctuation has the keys beside letters and digits: what they type without
// and with shift.
var punctuation = []struct {
	plain, shifted rune
	code           string
	number         int
}{
	{'`', '~', "Backquote", 192},
	{'-', '_', "Minus", 189},
	{'=', '+', "Equal", 187},
	{'[', '{', "BracketLeft", 219},
	{']', '}', "BracketRight", 221},
	{'\\', '|', "Backslash", 220},
	{';', ':', "Semicolon", 186},
	{'\'', '"', "Quote", 222},
	{',', '<', "Comma", 188},
	{'.', '>', "Period", 190},
	{'/', '?', "Slash", 191},
	{'1', '!', "Digit1", 49},
	{'2', '@', "Digit2", 50},
	{'3', '#', "Digit3", 51},
	{'4', '$', "Digit4", 52},
	{'5', '%', "Digit5", 53},
	{'6', '^', "Digit6", 54},
	{'7', '&', "Digit7", 55},
	{'8', '*', "Digit8", 56},
	{'9', '(', "Digit9", 57},
	{'0', ')', "Digit0", 48},
}

// keyOf is the key that types a character.
func keyOf(c rune) key {
	switch {
	case c == '\n' || c == '\r':
		return key{name: "Enter", code: "Enter", text: "\r", number: 13}
	case c == '\t':
		return key{name: "Tab", code: "Tab", number: 9}
	case c == ' ':
		return key{name: " ", code: "Space", text: " ", number: 32}
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		k := key{name: string(c), code: "Key" + string(unicode.ToUpper(c)), text: string(c), number: int(unicode.ToUpper(c))}
		if unicode.IsUpper(c) {
			k.modifiers = shift
		}
		return k
	}
	for _, p := range punctuation {
		if c == p.plain || c == p.shifted {
			k := key{name: string(c), code: p.code, text: string(c), number: p.number}
			if c == p.shifted {
				k.modifiers = shift
			}
			return k
		}
	}
	return key{name: string(c), text: string(c)}
}
