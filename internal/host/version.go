package host

import (
	"regexp"
	"strings"
	"sync"
)

// versionForm is the grammar of Python's versions (PEP 440, appendix B).
// Compiled at first use: most servers never list packages.
var versionForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)` +
		`(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]*))?` +
		`((?:-([0-9]+))|(?:[-_.]?(?:post|rev|r)[-_.]?([0-9]*)))?` +
		`([-_.]?dev[-_.]?([0-9]*))?` +
		`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)
})

var preRelease = map[string]string{
	"alpha": "a", "a": "a", "beta": "b", "b": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc",
}

// normalVersion is a version in normal form, as pip shows it: 1.0-RC.1 is
// 1.0rc1. What is no version stays as it is.
func normalVersion(s string) string {
	m := versionForm().FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return s
	}
	var b strings.Builder
	if epoch := integer(m[1]); epoch != "0" {
		b.WriteString(epoch + "!")
	}
	b.WriteString(integers(m[2]))
	if m[3] != "" {
		b.WriteString(preRelease[m[3]] + integer(m[4]))
	}
	if m[5] != "" {
		b.WriteString(".post" + integer(m[6]+m[7]))
	}
	if m[8] != "" {
		b.WriteString(".dev" + integer(m[9]))
	}
	if m[10] != "" {
		b.WriteString("+" + integers(strings.NewReplacer("-", ".", "_", ".").Replace(m[10])))
	}
	return b.String()
}

// integers makes normal the numbers among parts that dots separate.
func integers(s string) string {
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") == "" {
			parts[i] = integer(p)
		}
	}
	return strings.Join(parts, ".")
}

// integer is a number without leading zeros; none is 0.
func integer(s string) string {
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0"
	}
	return s
}
