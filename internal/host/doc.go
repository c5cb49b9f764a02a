// Package host tells facts about the machine as this process may use it:
// processors, memory, disk and load within the bounds of its control groups,
// who listens on which port, and what the package managers have installed.
//
// Everything is read from files of the kernel and of the managers themselves.
// Only the python3 of a search path is ever started, to ask where its packages
// are, and its answer is remembered (see [Python]).
//
// A fact that cannot be read is its zero value. Reading never waits: what is
// no regular file is not read, and every file and list has a bound.
package host
