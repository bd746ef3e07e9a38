// Package image checks the program of the image, which it builds by the command of deploy/Dockerfile, and how long it takes
// to stop. It has only tests.
package image
