// Package guardfs holds files that policy has decided about.
//
// A name is resolved once, with all its links, in our own code; the path
// rules judge the cleaned and the resolved path; then the kernel walks that
// resolved path with links forbidden and the directory it leads to is held
// open. Every operation works on that descriptor and the last component. If a
// component became a link meanwhile the walk fails and we look again. So what
// was decided is what is opened, whoever renames what in between, and nothing
// is looked up by its path a second time.
//
// Names are raw bytes; they need not be UTF-8. Refusals by policy are
// [*policy.Denied]; failures of the system are [*fs.PathError] around an errno
// or one of the errors of this package.
package guardfs
