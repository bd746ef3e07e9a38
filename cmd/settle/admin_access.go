package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/internal/admin/access"
)

func usersFlag() cli.Flag {
	return stringFlag("admin-users", "`FILE` with the users; settle admin user add makes it", "")
}

// accessFlags say where settle admin listens and whom it lets in.
func accessFlags() []cli.Flag {
	return []cli.Flag{
		stringFlag("admin-addr", "`HOST:PORT` to listen on; beyond this host only with a certificate or with proxies", access.DefaultAddr),
		usersFlag(),
		stringFlag("admin-tls-cert", "certificate `FILE` (PEM, with its chain); needs --admin-tls-key", ""),
		stringFlag("admin-tls-key", "key `FILE` (PEM); needs --admin-tls-cert", ""),
		stringFlag("admin-proxies", "`ADDRESSES` of the proxies in front, like 10.0.3.7,10.1.0.0/24: their X-Forwarded headers are believed", ""),
		stringFlag("admin-user-header", "`HEADER` in which these proxies name the user whom they have signed in; they must remove it from what clients send", ""),
		stringFlag("admin-groups-header", "`HEADER` in which they list the user's groups, separated by commas; without it everybody is a viewer", ""),
		stringFlag("admin-operator-group", "`GROUP` whose members are operators", string(access.Operator)),
		durationFlag("admin-session-idle", "sign out who did nothing for that `TIME`", access.DefaultIdle, time.Minute),
		durationFlag("admin-session-life", "sign out after that `TIME` in any case", access.DefaultLifetime, time.Minute),
	}
}

// openAccess reads the accessFlags.
func openAccess(cmd *cli.Command, log *slog.Logger) (*access.Access, error) {
	proxies, err := parseProxies(cmd.String("admin-proxies"))
	if err != nil {
		return nil, wrongUse("--admin-proxies (%s): %w", variableOf("admin-proxies").Key(), err)
	}
	users, header := cmd.String("admin-users"), cmd.String("admin-user-header")
	if users == "" && header == "" {
		return nil, wrongUse("nobody could sign in: make a users' file with settle admin user add and name it with --admin-users (%s), "+
			"or see --admin-user-header%s", variableOf("admin-users").Key(), hint(cmd))
	}
	let, err := access.New(access.Config{
		Users:    users,
		CertFile: cmd.String("admin-tls-cert"), KeyFile: cmd.String("admin-tls-key"),
		Idle: cmd.Duration("admin-session-idle"), Lifetime: cmd.Duration("admin-session-life"),
		Proxy: access.Proxy{
			From: proxies, UserHeader: header,
			GroupsHeader: cmd.String("admin-groups-header"), OperatorGroup: cmd.String("admin-operator-group"),
		},
		Logger: log,
	})
	if err != nil {
		return nil, wrongUse("%w%s", err, hint(cmd))
	}
	return let, nil
}

// parseProxies takes single addresses and ranges, separated by commas.
func parseProxies(list string) (proxies []netip.Prefix, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if addr, notAddr := netip.ParseAddr(text); notAddr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a range like 10.1.0.0/24", text)
		}
		proxies = append(proxies, prefix.Masked())
	}
	return proxies, nil
}
