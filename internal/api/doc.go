// Package api is what an endpoint is, and the one door every HTTP request
// goes through: route, admit, decode, answer, stream, audit.
//
// A row of the table ([Endpoint]) says everything about an endpoint; routes,
// discovery, the API document and the tests every row must pass are derived
// from it. Handlers get a [Call] and return values or errors; they never write
// a status.
package api
