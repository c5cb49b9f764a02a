// Package policy decides: who the caller is, what an endpoint's rule says,
// which paths, commands, variables and limits it allows.
//
// It is pure. It knows neither HTTP nor the file system: facts that need
// either (a credential header, where a symbolic link leads) come in as values,
// and every answer goes out as a [Decision]. A compiled [Policy] never
// changes; a reload compiles a new one and running requests keep theirs.
package policy
