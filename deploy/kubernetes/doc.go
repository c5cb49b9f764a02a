// Package kubernetes has only tests: they hold the manifests in this folder to
// the types of Kubernetes and to what the sandbox controller reads.
package kubernetes
