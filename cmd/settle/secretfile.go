package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
)

const (
	maxSecret  = 64 << 10 // bytes of a file with a secret
	fileSuffix = "_FILE"

	// traceHeaders is read by the SDK of OpenTelemetry. It usually holds a token.
	traceHeaders variable = "OTEL_EXPORTER_OTLP_HEADERS"
)

// secretFlag is a string flag whose value may hold a password or a token. Its variable can also name a file with the
// value: DATABASE_URL_FILE for DATABASE_URL.
func secretFlag(name string, v variable, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Usage: usage, Sources: cli.NewValueSourceChain(openSecret{v}, &secretFile{of: v})}
}

// openSecret is the variable that holds the value itself. It has none where a file is named as well, which then complains.
type openSecret struct{ variable }

func (s openSecret) Lookup() (string, bool) {
	if _, both := s.file().Lookup(); both {
		return "", false
	}
	return s.variable.Lookup()
}

func (v variable) file() variable { return v + fileSuffix }

// secretFile is the variable that names a file. A look-up cannot fail, so what is wrong is told by checkSecretFiles.
type secretFile struct {
	of  variable
	err error
}

func (s *secretFile) Lookup() (string, bool) {
	name, named := s.of.file().Lookup()
	if !named {
		return "", false
	}
	if _, both := s.of.Lookup(); both {
		s.err = wrongUse("%s and %s are both set: set one of them", s.of.Key(), s.Key())
		return "", false
	}
	value, err := readSecretFile(name)
	if err != nil {
		s.err = wrongUse("%s names a file that cannot be used: %w; its name is not shown, in case it is the secret itself", s.Key(), err)
		return "", false
	}
	return value, true
}

func (s *secretFile) Key() string      { return s.of.file().Key() }
func (s *secretFile) IsFromEnv() bool  { return true }
func (s *secretFile) String() string   { return s.of.file().String() }
func (s *secretFile) GoString() string { return s.of.file().GoString() }

// readSecretFile gives the content without one line end behind it, which editors and echo leave there. No error has the
// name or the content in it.
func readSecretFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", withoutPath(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", withoutPath(err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	switch {
	case len(raw) > maxSecret:
		return "", fmt.Errorf("it has more than %d bytes", maxSecret)
	case strings.TrimSpace(text) == "":
		return "", errors.New("it is empty")
	}
	return text, nil
}

func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// readSecretFiles makes every command that takes secrets tell what is wrong with their files before it does anything.
// A flag on the command line goes before them: what they hold does not matter then.
func readSecretFiles(cmd *cli.Command) {
	if secrets := secretFilesOf(cmd); len(secrets) > 0 {
		cmd.Before = func(ctx context.Context, _ *cli.Command) (context.Context, error) {
			return ctx, checkSecretFiles(secrets)
		}
	}
	for _, sub := range cmd.Commands {
		readSecretFiles(sub)
	}
}

func secretFilesOf(cmd *cli.Command) (secrets []*secretFile) {
	for _, f := range cmd.Flags {
		f, ok := f.(*cli.StringFlag)
		if !ok {
			continue
		}
		for _, source := range f.Sources.Chain {
			if s, ok := source.(*secretFile); ok {
				secrets = append(secrets, s)
			}
		}
	}
	return secrets
}

func checkSecretFiles(secrets []*secretFile) error {
	for _, s := range secrets {
		if s.err != nil {
			return s.err
		}
	}
	headers := secretFile{of: traceHeaders}
	value, ok := headers.Lookup()
	if !ok {
		return headers.err
	}
	return os.Setenv(traceHeaders.Key(), value) // where the SDK looks
}
