package policy

// FoldedGlob is a [Glob] that takes strings differing by case only for one.
// It is safe for concurrent use.
type FoldedGlob struct{ glob Glob }

// CompileFoldedGlob compiles a pattern. Every string is a pattern.
func CompileFoldedGlob(pattern string) FoldedGlob { return FoldedGlob{compileGlob(pattern, true)} }

// Match tells whether the pattern matches the whole of s.
func (g FoldedGlob) Match(s string) bool { return g.glob.Match(fold(s)) }
