// Package pty holds terminal sessions: programs on a terminal that live until
// they end or are deleted, whoever is connected.
//
// A [Manager] owns the sessions. Each [Session] has one goroutine that reads
// its terminal, always, into a ring of bytes with offsets; an [Attachment] is
// one reader's place in that ring. Slow readers fall behind and are told so;
// none can stop the program while another one reads, and none can stop the
// other readers. [Serve] speaks the WebSocket protocol over one attachment.
package pty
