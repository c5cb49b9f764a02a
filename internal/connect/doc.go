// Package connect speaks the Connect protocol, gRPC-Web and gRPC over
// net/http, for services whose messages are plain Go structs.
//
// A message is a struct whose fields carry the number and the name they have
// in the service's definition:
//
//	type SelectRequest struct {
//		PID  *uint32 `pb:"1,pid,oneof=selector"`
//		Path string  `pb:"2,path"`
//	}
//
// From that follow both codecs, proto3 JSON and binary, without generated code
// and without a registry that every start of the program would pay for.
package connect
