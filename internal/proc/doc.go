// Package proc starts, follows, signals and reaps processes and their groups.
//
// Every program the server runs is started by a [Manager]: shell commands,
// background processes, code runs, git, the shells of terminals, the Python
// worker, the browser. The manager therefore knows its children, and it alone
// waits for them. Packages that use it need no os/exec.
//
// # Starting
//
// A [Spec] says everything about a start; nothing is inherited but what it
// names. The environment is Spec.Env and nothing else, standard input is empty
// unless asked for, descriptors are closed, signals have their default
// handlers. A program is the leader of a new process group, or of a new
// session when it is given a terminal.
//
// A start costs one vfork and exec. What the kernel offers no call for from
// outside (umask, niceness, resource limits) is done by a short stage: the same
// binary, run again under another name, sets them on itself and then becomes
// the program. [Stage] is that entry; main calls it first. Starts that ask for
// none of these never pay for it.
//
// # Whose process is this?
//
// Ending a command must end everything it started, also daemons that made
// their own session and whose parents are gone. Such a process comes back to
// us, because the manager is a child subreaper, but nothing in its ancestry
// says any more which command it belongs to. So each start is marked: the soft
// RLIMIT_LOCKS, which Linux has ignored since 2.4, is set to a number of its
// own around the fork. Children inherit it through fork, exec, setsid and a
// cleared environment, and it can be read from outside (see mark.go). Where
// cgroup v2 is writable each command also has a cgroup directory, and
// cgroup.kill ends what is in it in one stroke. A daemon that has left its cgroup (or
// never had one) and has changed its mark cannot be told from another
// command's; it is ended with the server.
//
// # Ending
//
// Children are looked at with waitid(WNOWAIT), marked as ended under the
// process's lock and only then reaped; a signal is sent under the same lock
// and only to a process that is not reaped. Other processes are signalled
// through a pidfd. So a number that the kernel has given away is never hit.
//
// Other code should start nothing. A child that it does start, while no start
// is under way here, has two seconds to be waited for before it is taken for
// an orphan.
//
// # Output
//
// A [Sink] takes what a program prints: [Buffers] keep the first or the last
// bytes, a [Log] numbers events for readers with cursors, a [Feed] hands
// pieces to one consumer and slows the program down when that is slow. A
// grandchild that holds a pipe when the program has ended is waited for as
// [Grace] says; then its output is read on and dropped, so that it neither
// blocks nor dies of SIGPIPE.
package proc
