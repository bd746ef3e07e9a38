package main

import (
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/kindfile"
)

const kindsFile = "kinds-file"

// kindsFileFlag is of the program itself, because every command that knows kinds by name takes it.
func kindsFileFlag() cli.Flag {
	f := stringFlag(kindsFile, "YAML `FILE` with kinds that are HTTP calls, beside the built-in ones; one of the same name takes the place of "+
		"the built-in one", "")
	f.Aliases = []string{"kinds"}
	return f
}

// readKindsFile reads the file with kinds, if one is named.
func (o handlerOptions) readKindsFile() (*kindfile.File, error) {
	if o.kindsFile == "" {
		return &kindfile.File{}, nil
	}
	f, err := kindfile.Read(o.kindsFile)
	if err != nil {
		return nil, unusableKinds(err)
	}
	if problems := builtInProblems(f, o); len(problems) > 0 {
		return nil, unusableKinds(&kindfile.InvalidError{Path: f.Path, Problems: problems})
	}
	return f, nil
}

func unusableKinds(err error) error {
	return wrongUse("--%s (%s): %w", kindsFile, variableOf(kindsFile).Key(), err)
}

// fileDefinitions are the kinds of the file, and no others.
func fileDefinitions(o handlerOptions) ([]consumer.Definition, error) {
	f, err := o.readKindsFile()
	if err != nil {
		return nil, err
	}
	return declaredKinds(f, o)
}

func declaredKinds(f *kindfile.File, o handlerOptions) (defs []consumer.Definition, err error) {
	for _, k := range f.Kinds {
		def, err := k.Definition(kindfile.Options{Policy: o.policy})
		if err != nil {
			return nil, unusableKinds(err)
		}
		defs = append(defs, def)
	}
	return defs, nil
}

// withFile adds the kinds of the file to those of the build. One of the same name takes the place.
func withFile(builtIn []consumer.Definition, f *kindfile.File, o handlerOptions) ([]consumer.Definition, error) {
	declared, err := declaredKinds(f, o)
	if err != nil || len(declared) == 0 {
		return builtIn, err
	}
	own, err := byName(declared, o.base)
	if err != nil {
		return nil, unusableKinds(err)
	}
	var defs []consumer.Definition
	for _, def := range builtIn {
		d, err := consumer.Describe(consumer.Config{Policy: o.base}, def)
		if err != nil {
			return nil, unusableKinds(err) // the limits of the file do not fit together
		}
		if own[d.Name] == nil {
			defs = append(defs, def)
		}
	}
	return append(defs, declared...), nil
}

// callingKinds are the chosen kinds of a command that calls providers. Without a provider URL only those of the file can
// be called. What the file needs from variables and other files has to be there.
func callingKinds(cmd *cli.Command, kinds func(handlerOptions) ([]consumer.Definition, error)) ([]consumer.Definition, error) {
	o := readHandlerOptions(cmd)
	f, err := o.readKindsFile()
	if err != nil {
		return nil, err
	}
	if o.url == "" && len(f.Kinds) > 0 {
		kinds = fileDefinitions
	}
	defs, err := chosenKinds(cmd, kinds)
	if err != nil {
		return nil, err
	}
	return defs, checkKindsFile(cmd)
}

// checkKindsFile refuses a file whose variables and files are not there.
func checkKindsFile(cmd *cli.Command) error {
	f, err := readHandlerOptions(cmd).readKindsFile()
	if err != nil {
		return err
	}
	if err := f.Ready(); err != nil {
		return unusableKinds(err)
	}
	return nil
}

// needProvider refuses a command that has no provider to call. A file that declares kinds names theirs.
func needProvider(cmd *cli.Command) error {
	f, err := readHandlerOptions(cmd).readKindsFile()
	if err != nil || len(f.Kinds) > 0 {
		return err
	}
	_, err = needed(cmd, "provider-url", variableOf("provider-url"))
	return err
}

// flagsFirst gives limits that a flag or its variable sets, which go before those of the file, back to the engine's
// configuration.
func flagsFirst(cmd *cli.Command) func(consumer.Policy) consumer.Policy {
	return func(p consumer.Policy) consumer.Policy {
		var none consumer.Policy
		for name, give := range map[string]func(){
			"lease-policy":        func() { p.Lease = none.Lease },
			"deadline":            func() { p.Deadline = 0 },
			"max-failures":        func() { p.MaxFailures = 0 },
			"max-age":             func() { p.MaxAge = 0 },
			"backoff-min":         func() { p.BackoffMin = 0 },
			"backoff-max":         func() { p.BackoffMax = 0 },
			"retry-after-max":     func() { p.RetryAfterMax = 0 },
			"misconfigured-delay": func() { p.MisconfiguredWait = 0 },
			"retention":           func() { p.Retention = cmd.Duration("retention") }, // a zero is the kind's own default
		} {
			if cmd.IsSet(name) {
				give()
			}
		}
		return p
	}
}
