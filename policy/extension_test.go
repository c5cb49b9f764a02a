package policy

import "testing"

func TestExtensions(t *testing.T) {
	for name, want := range map[string]string{
		"a.txt": ".txt", "B.TXT": ".txt", "c.tar.gz": ".gz", "plain": "", ".bashrc": "", "a.": "", ".a.b": ".b",
		"/x.d/plain": "", "/x.d/.env": "", "/x.d/y.É": ".é", "": "", "/": "", "..": "",
	} {
		if got := Extension(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		name        string
		allow, deny []string
		want        Code
	}{
		{"a.sh", nil, nil, Allowed},
		{"a.sh", []string{}, []string{}, Allowed},
		{"a.TXT", []string{".txt"}, nil, Allowed},
		{"a.txt", []string{".TXT", ".gz", ""}, []string{".sh"}, Allowed},
		{"c.tar.gz", []string{".gz"}, nil, Allowed},
		{"plain", []string{""}, nil, Allowed},
		{".bashrc", []string{""}, nil, Allowed},
		{"plain", []string{".txt"}, nil, ExtensionNotAllowed},
		{"x.py", []string{".txt"}, nil, ExtensionNotAllowed},
		{"x.SH", nil, []string{".sh"}, ExtensionNotAllowed},
		{"x.sh", []string{".sh"}, []string{".Sh"}, ExtensionNotAllowed},
		{"plain", nil, []string{""}, ExtensionNotAllowed},
		{"x.sh.txt", nil, []string{".sh"}, Allowed},
	} {
		if d := ExtensionDecision(c.name, c.allow, c.deny); d.Code != c.want {
			t.Errorf("%+v: %q", c, d.Code)
		}
	}
}
