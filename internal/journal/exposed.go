package journal

import (
	"fmt"
	"io/fs"
)

// AnyUser is the uid for callers that do not know which user runs the gateway.
const AnyUser = -1

// Exposed returns why other users of this machine could replace the files in dir of a gateway that
// runs as user uid; "" if they could not, or there is no such directory. The directory's group may
// write, as it often can on volumes.
func Exposed(dir string, uid int) string {
	if dir == "" {
		return ""
	}
	info, owner, err := stat(dir)
	switch {
	case err != nil:
		return ""
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("%s has mode %04o, so any user of this machine can replace what is in it: chmod 700 it", dir, mode(info))
	case owner > 0 && uid != AnyUser && owner != uid:
		return fmt.Sprintf("%s belongs to user %d, who can replace what is in it, and not to user %d, who runs this: chown it", dir, owner, uid)
	}
	return ""
}

// mode returns the mode as chmod has it.
func mode(info fs.FileInfo) uint32 {
	m := uint32(info.Mode().Perm())
	if info.Mode()&fs.ModeSticky != 0 {
		m |= 0o1000
	}
	return m
}
