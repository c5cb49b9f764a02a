//go:build !race

package guardfs

const raceDetector = false
